"""How alike a corpus and the texts of tasks are, by three measures that no model plays a part in.

- The Jensen-Shannon divergence (Lin 1991) of their words, in bits: 0 of equal distributions, 1 of
  distributions without a word in common. Between samples it comes out too large, the more so the
  smaller and the more varied they are. So samples of equal size are compared, half of the task's
  words with as many of the corpus, and the mean of what two samples of the task and two samples of
  the corpus differ by is subtracted. That is 0 on average where both have one distribution,
  whatever the amount of text; where they differ it is somewhat too small. It may be just below 0.
  (Fewer documents may have other words than more documents of one source: that counts.)
- The share of the task's words that the corpus never has. It falls with the amount of text.
- The bits that a byte of the task takes under a model of the corpus (``byte_ngrams``), which
  the order of words and the amount of text change, too.

Words are those of ``contamination``: case and punctuation make no difference. Bytes are the text's.
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

NUM_DRAWS = 10  # of samples, whose divergences are averaged
SEED = 0


@dataclass(frozen=True)
class Likeness:
    """Of a task's texts to a corpus."""

    texts: int
    words: int
    types: int  # different words
    bytes: int
    sampled_words: int  # on each side of the divergence
    divergence: float | None  # of words, Jensen-Shannon, in bits; None if there are no words
    uncorrected_divergence: float | None
    unseen_words: float | None  # share of the task's words that the corpus never has
    unseen_types: float | None
    bits_per_byte: float | None  # under the n-gram model of the corpus


@dataclass(frozen=True)
class Measured:
    """What was read of a corpus, and the likeness of each task to it."""

    documents: int
    words: int
    types: int
    bytes: int
    tasks: dict[str, Likeness]


class Reading(NamedTuple):
    """What was counted of a part of the corpus."""

    documents: int
    bytes: int
    words: Counter[str]
    grams: list[Counts]


class Comparison:
    """Of a corpus, which is read in parts, with the texts of tasks."""

    def __init__(self, tasks: Mapping[str, Sequence[str]]) -> None:
        self._tasks = tasks
        self._ngrams = ByteNgrams([text.encode() for texts in tasks.values() for text in texts])

    def read(self, documents: Iterable[Sequence[str]]) -> Reading:
        """Count documents (lists of sentences), a few at a time; any process can."""
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
        """``folder``, which is not there, gets the words that are too many for memory."""
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
        found = {
            task: _likeness(
                texts, own[task], vocabulary, bits=sum(islice(bits, len(texts))), key=(seed, task)
            )
            for task, texts in self._tasks.items()
        }
        return Measured(num_documents, num_words, vocabulary.num_types, num_bytes, found)


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
    """Corrected and not: means over samples of ``number`` words, drawn without replacement."""
    vocabulary = sorted(own)  # in an order that depends on no order of texts
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
    """int64 [2, number]: the words of two disjoint samples; ``ends`` are the sums of all counts up
    to each word."""
    drawn = rng.choice(ends[-1], 2 * number, replace=False)
    return np.searchsorted(ends, drawn, side="right").reshape(2, number)


def _divergence(one: np.ndarray, other: np.ndarray) -> float:
    """Of two samples of words. Of the words that neither has no count is kept: a corpus has
    millions of them."""
    found, places = np.unique(np.concatenate([one, other]), return_inverse=True)
    of_one, of_other = np.split(places, [len(one)])
    return jensen_shannon(*(np.bincount(each, minlength=len(found)) for each in (of_one, of_other)))


def jensen_shannon(one: np.ndarray, other: np.ndarray) -> float:
    """The divergence, in bits, of the distributions that two arrays of counts are."""
    p, q = one / one.sum(), other / other.sum()
    middle = (p + q) / 2

    def from_middle(each: np.ndarray) -> float:
        some = each > 0
        return float(np.sum(each[some] * np.log2(each[some] / middle[some])))

    return (from_middle(p) + from_middle(q)) / 2
