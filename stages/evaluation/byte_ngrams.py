"""An n-gram model of the bytes of a corpus, for computing the bits of given texts.

Probabilities have the smoothing of Witten and Bell (1991), interpolated as in Chen and Goodman
(1999, section 2.5). The baseline ``ngram`` uses the same formula:

    p(b | c) = (n(c b) + t(c) p(b | c')) / (n(c) + t(c))

n counts occurrences, t(c) is the number of different bytes that follow c, and c' is c without its
first byte. For the empty c, p(b | c') is 1/256. Unlike the baseline, this model counts only
contexts that occur in the given texts, so its memory depends on these texts, not on the corpus.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stages.core.parallel import grouped

ORDER = 6  # a byte and the five before it
NUM_BYTES = 256
BEGIN = b"\n"  # put before every text, so that its first byte has a context
BATCH_BYTES = 2**22  # bytes of a corpus counted at once; all of it may not fit into memory


class ByteNgrams:
    """Computes the bits of given texts under an n-gram model of a corpus that is read in parts."""

    def __init__(self, texts: Sequence[bytes], *, order: int = ORDER) -> None:
        """``texts`` are the texts whose bits are computed."""
        self._bytes = _Bytes.of(texts)
        self._num_texts = len(texts)
        self._levels = [*_levels(self._bytes, order)]

    def count(self, texts: Iterable[bytes]) -> None:
        """Counts the n-grams of texts of the corpus. No n-gram spans two texts."""
        for batch in grouped(texts, len, BATCH_BYTES):
            self.add(self._counted(batch))

    def counted(self, texts: Iterable[bytes]) -> list["Counts"]:
        """Returns the n-gram counts of texts of the corpus, by context length, for ``add``."""
        batches = map(self._counted, grouped(texts, len, BATCH_BYTES))
        return [_sum(of_length) for of_length in zip(*batches, strict=True)]

    def add(self, counts: Sequence["Counts"]) -> None:
        """Adds the counts that ``counted`` returned in this process or another one."""
        for level, of_length in zip(self._levels, counts, strict=False):
            level.add(of_length)

    def _counted(self, batch: Sequence[bytes]) -> list["Counts"]:
        corpus = _Bytes.of(batch)
        at = np.arange(len(corpus.value))
        node = np.zeros(len(at), dtype=np.int64)
        counts = []
        for length, level in enumerate(self._levels):
            if length:
                at, node = corpus.longer(at, node, length)
                at, node = level.shared(at, node)
            counts.append(level.counted(node, corpus.value[at]))
        return counts

    def bits(self) -> np.ndarray:
        """Returns the bits of each text given ``BEGIN`` before it, as float64 [num_texts]."""
        p = np.full(len(self._bytes.value), 1 / NUM_BYTES)
        for level in self._levels:
            p[level.at] = level.interpolated(p[level.at])
        inside = self._bytes.offset > 0
        of_text = self._bytes.text[inside]
        return np.bincount(of_text, -np.log2(p[inside]), minlength=self._num_texts)


class Counts(NamedTuple):
    """How often each byte follows each context of one length."""

    grams: np.ndarray  # int64 [n], sorted: node * NUM_BYTES + byte
    number: np.ndarray  # int64 [n]: count of each gram


def _sum(parts: Sequence[Counts]) -> Counts:
    grams, place = np.unique(np.concatenate([part.grams for part in parts]), return_inverse=True)
    total = np.zeros(len(grams), dtype=np.int64)
    np.add.at(total, place, np.concatenate([part.number for part in parts]))
    return Counts(grams, total)


class _Bytes(NamedTuple):
    """The bytes of concatenated texts, with ``BEGIN`` before each text."""

    value: np.ndarray  # uint8 [num_bytes]
    offset: np.ndarray  # int64 [num_bytes]: position within the text
    text: np.ndarray  # int64 [num_bytes]: index of the text

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> "_Bytes":
        lengths = np.array([len(text) + len(BEGIN) for text in texts], dtype=np.int64)
        starts = np.cumsum(lengths) - lengths
        value = np.frombuffer(b"".join(BEGIN + text for text in texts), dtype=np.uint8)
        text = np.repeat(np.arange(len(texts)), lengths)
        return cls(value, np.arange(len(value)) - starts[text], text)

    def longer(
        self, at: np.ndarray, node: np.ndarray, length: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the positions that have a context of ``length`` bytes, and the contexts' keys.

        A key combines the context's first byte and the node of the rest of the context.
        """
        inside = self.offset[at] >= length
        at, node = at[inside], node[inside]
        return at, node * NUM_BYTES + self.value[at - length]


class _Level:
    """The contexts of one length that occur in the texts. A node is a context's index in
    ``keys``."""

    def __init__(self, at: np.ndarray, keys: np.ndarray, value: np.ndarray) -> None:
        """``at`` are the positions in the texts that have a context of this length, ``keys`` these
        contexts, and ``value`` the bytes at the positions."""
        self.at = at
        self.keys, self.node = np.unique(keys, return_inverse=True)
        self._grams, self._gram = np.unique(self.node * NUM_BYTES + value, return_inverse=True)
        self._gram_counts = np.zeros(len(self._grams), dtype=np.int64)
        self._counts = np.zeros(len(self.keys), dtype=np.int64)
        self._follows = np.zeros(len(self.keys) * NUM_BYTES, dtype=bool)

    def shared(self, at: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the positions whose context in the corpus occurs in the texts, and its nodes."""
        node = np.minimum(np.searchsorted(self.keys, keys), max(len(self.keys) - 1, 0))
        same = self.keys[node] == keys if len(self.keys) else np.zeros(len(keys), dtype=bool)
        return at[same], node[same]

    def counted(self, node: np.ndarray, value: np.ndarray) -> Counts:
        """Counts how often each byte (of ``value``) follows each context (of ``node``)."""
        grams = node * NUM_BYTES + value
        if len(self._follows) <= len(grams):
            numbers = np.bincount(grams, minlength=len(self._follows))
            grams_present = np.flatnonzero(numbers)
            return Counts(grams_present, numbers[grams_present])
        return Counts(*np.unique(grams, return_counts=True))  # faster for few grams

    def add(self, counts: Counts) -> None:
        grams, number = counts
        np.add.at(self._counts, grams // NUM_BYTES, number)
        self._follows[grams] = True
        counted = np.isin(self._grams, grams, assume_unique=True)
        self._gram_counts[counted] += number[np.isin(grams, self._grams, assume_unique=True)]

    def interpolated(self, p: np.ndarray) -> np.ndarray:
        """Returns the probabilities of the texts' bytes at the positions ``at``. ``p`` are their
        probabilities in the contexts one byte shorter."""
        kinds = self._follows.reshape(-1, NUM_BYTES).sum(1)[self.node]
        total = self._counts[self.node] + kinds
        mixed = self._gram_counts[self._gram] + kinds * p
        return np.divide(mixed, total, out=p.copy(), where=total > 0)


def _levels(texts: _Bytes, order: int) -> Iterator[_Level]:
    at = np.arange(len(texts.value))
    keys = np.zeros(len(at), dtype=np.int64)
    for length in range(order):
        if length:
            at, keys = texts.longer(at, keys, length)
        level = _Level(at, keys, texts.value[at])
        yield level
        keys = level.node
