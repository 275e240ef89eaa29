"""Likeness of a corpus and the texts of tasks, by three measures that use no neural model.

- The Jensen-Shannon divergence (Lin 1991) of their words, in bits. It is 0 for equal distributions
  and 1 for distributions without a common word. Estimated from samples, it is too large, the more
  so the smaller and the more varied they are. So two samples of the task's words and two of the
  corpus's words, all of one size, are drawn. From the mean divergence between a sample of the task
  and one of the corpus, the mean divergence of two samples of one source is subtracted. For any
  amount of text, the result is 0 on average if the distributions are equal, and somewhat too small
  if they differ. It may be slightly below 0.
  (A few documents may have other words than many documents of the same source; this counts as a
  difference.)
- The share of the task's words that do not occur in the corpus. It falls as the corpus grows.
- The bits per byte of the task under an n-gram model of the corpus (``byte_ngrams``). They also
  depend on the order of words and on the size of the corpus.

Words are defined as in ``contamination``, without case and punctuation. Bytes are those of the
original text.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np

from stages.core.seeding import stream
from stages.evaluation.byte_ngrams import ByteNgrams, Counts
from stages.evaluation.contamination import words
from stages.evaluation.word_counts import Vocabulary, WordCounts

NUM_DRAWS = 10  # times that samples are drawn; divergences are averaged over them
SEED = 0


@dataclass(frozen=True)
class Likeness:
    """The likeness of a task's texts to a corpus."""

    texts: int
    words: int
    types: int  # different words
    bytes: int
    sampled_words: int  # in each sample for the divergence
    divergence: float | None  # of words, Jensen-Shannon, in bits; None if there are no words
    uncorrected_divergence: float | None
    unseen_words: float | None  # share of the task's words that do not occur in the corpus
    unseen_types: float | None
    bits_per_byte: float | None  # under the n-gram model of the corpus


@dataclass(frozen=True)
class Measured:
    """The size of a corpus, and the likeness of each task to it."""

    documents: int
    words: int
    types: int
    bytes: int
    tasks: dict[str, Likeness]


class Reading(NamedTuple):
    """The counts of a part of the corpus."""

    documents: int
    bytes: int
    words: Counter[str]
    grams: list[Counts]


class Comparison:
    """Compares a corpus, which is read in parts, with the texts of tasks."""

    def __init__(self, tasks: Mapping[str, Sequence[str]]) -> None:
        self._tasks = tasks
        self._ngrams = ByteNgrams([text.encode() for texts in tasks.values() for text in texts])

    def read(self, documents: Iterable[Sequence[str]]) -> Reading:
        """Counts words and n-grams of documents (lists of sentences). Any process may call this."""
        counts: Counter[str] = Counter()
        num_documents = num_bytes = 0

        def sentences() -> Iterator[bytes]:
            nonlocal num_documents, num_bytes
            for document in documents:
                num_documents += 1
                for sentence in document:
                    counts.update(words(sentence))
                    encoded = sentence.encode()
                    num_bytes += len(encoded)
                    yield encoded

        grams = self._ngrams.counted(sentences())
        return Reading(num_documents, num_bytes, counts, grams)

    def measured(self, readings: Iterable[Reading], folder: Path, *, seed: int = SEED) -> Measured:
        """Returns the size of the whole corpus and the likeness of each task to it.

        Words that do not fit into memory are written to ``folder``, which must not exist.
        """
        corpus = WordCounts(folder)
        num_documents = num_bytes = num_words = 0
        for reading in readings:
            num_documents += reading.documents
            num_bytes += reading.bytes
            num_words += reading.words.total()
            corpus.add(reading.words)
            self._ngrams.add(reading.grams)
        own = {
            task: Counter(word for text in texts for word in words(text))
            for task, texts in self._tasks.items()
        }
        vocabulary = corpus.vocabulary(word for of_task in own.values() for word in of_task)
        bits = iter(self._ngrams.bits().tolist())
        likeness_by_task = {
            task: _likeness(
                texts, own[task], vocabulary, bits=sum(islice(bits, len(texts))), key=(seed, task)
            )
            for task, texts in self._tasks.items()
        }
        return Measured(num_documents, num_words, vocabulary.num_types, num_bytes, likeness_by_task)


def _likeness(
    texts: Sequence[str],
    own: Counter[str],
    corpus: Vocabulary,
    *,
    bits: float,
    key: tuple[int, str],
) -> Likeness:
    in_corpus = int(corpus.ends[-1]) if len(corpus.ends) else 0
    number = min(own.total(), in_corpus) // 2
    divergence = uncorrected = None
    if number:
        divergence, uncorrected = _divergences(own, corpus, number, key)
    unseen = [count for word, count in own.items() if not corpus.number[word]]
    num_bytes = sum(len(text.encode()) for text in texts)
    return Likeness(
        texts=len(texts),
        words=own.total(),
        types=len(own),
        bytes=num_bytes,
        sampled_words=number,
        divergence=divergence,
        uncorrected_divergence=uncorrected,
        unseen_words=sum(unseen) / own.total() if own else None,
        unseen_types=len(unseen) / len(own) if own else None,
        bits_per_byte=bits / num_bytes if num_bytes else None,
    )


def _divergences(
    own: Counter[str], corpus: Vocabulary, number: int, key: tuple[int, str]
) -> tuple[float, float]:
    """Returns the corrected and the uncorrected divergence: means over samples of ``number`` words,
    drawn without replacement."""
    vocabulary = sorted(own)  # an order that does not depend on the order of texts
    places = np.array([corpus.place[word] for word in vocabulary])
    ends = np.cumsum([own[word] for word in vocabulary])
    between, within = [], []
    for draw in range(NUM_DRAWS):
        rng = stream(key[0], "likeness", key[1], draw)
        a, b = (places[sample] for sample in _two_samples(ends, number, rng))
        c, d = _two_samples(corpus.ends, number, rng)
        between += [_divergence(a, c), _divergence(b, d)]
        within += [_divergence(a, b), _divergence(c, d)]
    return fmean(between) - fmean(within), fmean(between)


def _two_samples(ends: np.ndarray, number: int, rng: np.random.Generator) -> np.ndarray:
    """Returns two disjoint random samples of words, as indices of words, int64 [2, number].
    ``ends`` are the cumulative counts of words."""
    drawn = rng.choice(ends[-1], 2 * number, replace=False)
    return np.searchsorted(ends, drawn, side="right").reshape(2, number)


def _divergence(one: np.ndarray, other: np.ndarray) -> float:
    """Returns the divergence of two samples of words. Only words in the samples are counted,
    because a corpus may have millions of others."""
    sampled, places = np.unique(np.concatenate([one, other]), return_inverse=True)
    of_one, of_other = np.split(places, [len(one)])
    return jensen_shannon(
        np.bincount(of_one, minlength=len(sampled)), np.bincount(of_other, minlength=len(sampled))
    )


def jensen_shannon(one: np.ndarray, other: np.ndarray) -> float:
    """Returns the divergence, in bits, of two distributions given as counts."""
    p, q = one / one.sum(), other / other.sum()
    middle = (p + q) / 2

    def from_middle(share: np.ndarray) -> float:
        some = share > 0
        return float(np.sum(share[some] * np.log2(share[some] / middle[some])))

    return (from_middle(p) + from_middle(q)) / 2
