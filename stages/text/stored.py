"""The documents of a corpus as they are stored: a line of JSON for each, read where it lies."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from stages.core import parallel

_BLOCK_BYTES = 2**24


class StoredDocuments:
    """Where each document of a ``.jsonl`` file begins, and their sentences by their numbers.

    Of a document, 8 bytes are kept. (``datasets`` would map such a file to memory, too, but from a
    copy of it in Arrow's format.)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._bounds = _line_bounds(path)

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def parts(self, numbers: np.ndarray) -> Iterator[np.ndarray]:
        """``numbers`` in their order, cut where there are ``PART_BYTES``."""
        for some in np.array_split(numbers, max(1, len(numbers) // 2**16)):
            ends = np.cumsum(self._bounds[some + 1] - self._bounds[some])
            begin = 0
            while begin < len(some):
                done = ends[begin - 1] if begin else 0
                end = int(np.searchsorted(ends, done + parallel.PART_BYTES)) + 1
                yield some[begin:end]
                begin = end

    def size(self, numbers: np.ndarray) -> int:
        """The bytes of these documents."""
        return int(np.sum(self._bounds[numbers + 1] - self._bounds[numbers]))

    def sentences(self, numbers: Sequence[int] | np.ndarray) -> Iterator[list[str]]:
        """Those of each of these documents."""
        file = os.open(self.path, os.O_RDONLY)
        try:
            for number in numbers:
                begin, end = self._bounds[number : number + 2].tolist()
                yield json.loads(_read(file, begin, end))["sentences"]
        finally:
            os.close(file)


def _read(file: int, begin: int, end: int) -> bytes:
    """A call may give less than was asked for."""
    found = os.pread(file, end - begin, begin)
    while len(found) < end - begin:
        found += os.pread(file, end - begin - len(found), begin + len(found))
    return found


def _line_bounds(path: Path) -> np.ndarray:
    """int64 [num_lines + 1]: where each line begins and where the last one ends."""
    bounds, offset = [np.zeros(1, dtype=np.int64)], 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK_BYTES):
            ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n"))
            bounds.append(ends + (offset + 1))
            offset += len(block)
    return np.concatenate(bounds)
