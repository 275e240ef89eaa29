"""A language model of bytes, fitted on a corpus and asked for texts that are known beforehand.

The smoothing is that of Witten and Bell (1991; interpolated as in Chen and Goodman 1999, section
2.5), as in the baseline ``ngram``:

    p(b | c) = (n(c b) + t(c) p(b | c')) / (n(c) + t(c))

n counts, t(c) is the number of different bytes behind c, c' is c without its first byte, and below
the empty context each byte is as likely. Different from the baseline: only contexts that the texts
have are counted, so the memory that it takes depends on the texts and not on the corpus.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

ORDER = 6  # a byte and the five before it
NUM_BYTES = 256
BEGIN = b"\n"  # stands before every text, so that its first byte has a context
BATCH_BYTES = 2**22  # counted at once: a corpus may be larger than memory


class ByteNgrams:
    """The bits of texts under the model of a corpus, which is read in parts."""

    def __init__(self, texts: Sequence[bytes], *, order: int = ORDER) -> None:
        """``texts`` are those whose bits are asked for."""
        self._asked = _Bytes.of(texts)
        self._num_texts = len(texts)
        self._levels = [*_levels(self._asked, order)]

    def count(self, texts: Iterable[bytes]) -> None:
        """Count texts of the corpus; contexts do not reach beyond a text."""
        for batch in _batches(texts):
            self.add(self._counted(batch))

    def counted(self, texts: Iterable[bytes]) -> list["Counts"]:
        """What texts of the corpus add to the counts of each length, for ``add``."""
        batches = map(self._counted, _batches(texts))
        return [_sum(of_length) for of_length in zip(*batches, strict=True)]

    def add(self, counts: Sequence["Counts"]) -> None:
        """Add what was counted, here or by another process."""
        for level, of_length in zip(self._levels, counts, strict=False):
            level.add(of_length)

    def _counted(self, batch: Sequence[bytes]) -> list["Counts"]:
        found = _Bytes.of(batch)
        at = np.arange(len(found.value))
        node = np.zeros(len(at), dtype=np.int64)
        counts = []
        for length, level in enumerate(self._levels):
            if length:
                at, node = found.longer(at, node, length)
                at, node = level.known(at, node)
            counts.append(level.counted(node, found.value[at]))
        return counts

    def bits(self) -> np.ndarray:
        """float64 [num_texts]: the bits of each text, given that it begins."""
        p = np.full(len(self._asked.value), 1 / NUM_BYTES)
        for level in self._levels:
            p[level.at] = level.interpolated(p[level.at])
        inside = self._asked.offset > 0
        of_text = self._asked.text[inside]
        return np.bincount(of_text, -np.log2(p[inside]), minlength=self._num_texts)


class Counts(NamedTuple):
    """Of the contexts of one length with a byte behind each."""

    grams: np.ndarray  # int64 [n], sorted: node * NUM_BYTES + byte
    number: np.ndarray  # int64 [n]


def _sum(parts: Sequence[Counts]) -> Counts:
    grams, place = np.unique(np.concatenate([part.grams for part in parts]), return_inverse=True)
    total = np.zeros(len(grams), dtype=np.int64)
    np.add.at(total, place, np.concatenate([part.number for part in parts]))
    return Counts(grams, total)


class _Bytes(NamedTuple):
    """Texts end to end, with ``BEGIN`` before each."""

    value: np.ndarray  # uint8 [num_bytes]
    offset: np.ndarray  # int64 [num_bytes]: in its text
    text: np.ndarray  # int64 [num_bytes]: the number of its text

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
        """The places whose context can be ``length`` bytes long, and the keys of these contexts:
        the node of the next shorter one, and the byte before it."""
        inside = self.offset[at] >= length
        at, node = at[inside], node[inside]
        return at, node * NUM_BYTES + self.value[at - length]


class _Level:
    """The contexts of one length that the texts have, as nodes: places in ``keys``."""

    def __init__(self, at: np.ndarray, keys: np.ndarray, value: np.ndarray) -> None:
        """``at`` are the places in the texts that have such a context; ``value`` is the byte
        there."""
        self.at = at
        self.keys, self.node = np.unique(keys, return_inverse=True)
        self._grams, self._gram = np.unique(self.node * NUM_BYTES + value, return_inverse=True)
        self._gram_counts = np.zeros(len(self._grams), dtype=np.int64)
        self._counts = np.zeros(len(self.keys), dtype=np.int64)
        self._follows = np.zeros(len(self.keys) * NUM_BYTES, dtype=bool)

    def known(self, at: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The places in a corpus whose context the texts have, too, and its node."""
        node = np.minimum(np.searchsorted(self.keys, keys), max(len(self.keys) - 1, 0))
        same = self.keys[node] == keys if len(self.keys) else np.zeros(len(keys), dtype=bool)
        return at[same], node[same]

    def counted(self, node: np.ndarray, value: np.ndarray) -> Counts:
        """Of places in a corpus."""
        grams = node * NUM_BYTES + value
        if len(self._follows) <= len(grams):
            numbers = np.bincount(grams, minlength=len(self._follows))
            found = np.flatnonzero(numbers)
            return Counts(found, numbers[found])
        return Counts(*np.unique(grams, return_counts=True))  # fewer than there could be

    def add(self, counts: Counts) -> None:
        grams, number = counts
        np.add.at(self._counts, grams // NUM_BYTES, number)
        self._follows[grams] = True
        asked = np.isin(self._grams, grams, assume_unique=True)
        self._gram_counts[asked] += number[np.isin(grams, self._grams, assume_unique=True)]

    def interpolated(self, p: np.ndarray) -> np.ndarray:
        """The probabilities at the places of the texts, from those with the next shorter
        context."""
        kinds = self._follows.reshape(-1, NUM_BYTES).sum(1)[self.node]
        total = self._counts[self.node] + kinds
        mixed = self._gram_counts[self._gram] + kinds * p
        return np.divide(mixed, total, out=p.copy(), where=total > 0)


def _levels(asked: _Bytes, order: int) -> Iterator[_Level]:
    at = np.arange(len(asked.value))
    keys = np.zeros(len(at), dtype=np.int64)
    for length in range(order):
        if length:
            at, keys = asked.longer(at, keys, length)
        level = _Level(at, keys, asked.value[at])
        yield level
        keys = level.node


def _batches(texts: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    num_bytes = 0
    for text in texts:
        batch.append(text)
        num_bytes += len(text)
        if num_bytes >= BATCH_BYTES:
            yield batch
            batch, num_bytes = [], 0
    if batch:
        yield batch
