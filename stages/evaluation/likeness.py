"""Domain similarity of a corpus and the texts of tasks.

It is 1 minus the Jensen-Shannon divergence (in bits) of their words, so 1 for equal distributions
and 0 for distributions without a common word (Ruder and Plank 2017). Few texts are less similar to
any corpus than many are, so the numbers of one task can be compared over corpora, and not those of
one corpus over tasks. Words are defined as in ``contamination``, without case and punctuation.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stages.evaluation.contamination import words


@dataclass(frozen=True)
class Likeness:
    """The likeness of a task's texts to a corpus."""

    words: int
    similarity: float | None  # None if one of the two has no words


@dataclass(frozen=True)
class Measured:
    """The size of a corpus, and the likeness of each task to it."""

    documents: int
    words: int
    types: int  # different words
    bytes: int
    tasks: dict[str, Likeness]


def measured(documents: Iterable[Sequence[str]], tasks: Mapping[str, Sequence[str]]) -> Measured:
    """Returns the size of a corpus, given as documents (lists of sentences), and the likeness of
    each task's texts to it."""
    num_documents = num_bytes = 0
    corpus: Counter[str] = Counter()
    for sentences in documents:
        num_documents += 1
        for sentence in sentences:
            num_bytes += len(sentence.encode())
            corpus.update(words(sentence))
    likeness = {}
    for task, texts in tasks.items():
        own = Counter(word for text in texts for word in words(text))
        likeness[task] = Likeness(own.total(), similarity(own, corpus))
    return Measured(num_documents, corpus.total(), len(corpus), num_bytes, likeness)


def similarity(one: Counter[str], other: Counter[str]) -> float | None:
    """Returns 1 minus the Jensen-Shannon divergence of two counts of words; None without words."""
    if not (one and other):
        return None
    vocabulary = sorted({*one, *other})
    p, q = (np.array([counts[word] for word in vocabulary], float) for counts in (one, other))
    p, q = p / p.sum(), q / q.sum()
    middle = (p + q) / 2
    divergence = sum(
        float(np.sum(share[share > 0] * np.log2(share[share > 0] / middle[share > 0]))) / 2
        for share in (p, q)
    )
    return 1 - divergence
