"""The stored documents of a corpus: one line of JSON each, read from the file when needed."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from stages.core import parallel

_BLOCK_BYTES = 2**24


class StoredDocuments:
    """The documents of a ``.jsonl`` file, read by number.

    Only their positions in the file are in memory: 8 bytes for each document. (``datasets`` could
    memory-map only a copy of the file in Arrow's format.)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._bounds = _line_bounds(path)

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def parts(self, numbers: np.ndarray) -> Iterator[np.ndarray]:
        """Yields ``numbers`` in order, in parts of about ``PART_BYTES`` bytes of text."""
        for block in np.array_split(numbers, max(1, len(numbers) // 2**16)):
            ends = np.cumsum(self._bounds[block + 1] - self._bounds[block])
            begin = 0
            while begin < len(block):
                done = ends[begin - 1] if begin else 0
                end = int(np.searchsorted(ends, done + parallel.PART_BYTES)) + 1
                yield block[begin:end]
                begin = end

    def size(self, numbers: np.ndarray) -> int:
        """Returns the size in bytes of the documents with these numbers."""
        return int(np.sum(self._bounds[numbers + 1] - self._bounds[numbers]))

    def sentences(self, numbers: Sequence[int] | np.ndarray) -> Iterator[list[str]]:
        """Yields the sentences of each document with these numbers."""
        file = os.open(self.path, os.O_RDONLY)
        try:
            for number in numbers:
                begin, end = self._bounds[number : number + 2].tolist()
                yield json.loads(_read(file, begin, end))["sentences"]
        finally:
            os.close(file)


def _read(file: int, begin: int, end: int) -> bytes:
    """Reads all bytes from ``begin`` to ``end``; one call of ``pread`` may return fewer than
    requested."""
    data = os.pread(file, end - begin, begin)
    while len(data) < end - begin:
        data += os.pread(file, end - begin - len(data), begin + len(data))
    return data


def _line_bounds(path: Path) -> np.ndarray:
    """Returns where each line begins and where the last line ends, int64 [num_lines + 1]."""
    bounds, offset = [np.zeros(1, dtype=np.int64)], 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK_BYTES):
            ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n"))
            bounds.append(ends + (offset + 1))
            offset += len(block)
    return np.concatenate(bounds)
