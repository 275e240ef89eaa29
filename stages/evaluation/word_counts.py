"""Word counts of a corpus that may have more different words than fit into memory."""

import heapq
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

MOST_HELD = 2**20  # different words in memory, at about 200 bytes per word


class Vocabulary(NamedTuple):
    """The corpus counts of the words of a corpus and of some given words, sorted by word."""

    ends: np.ndarray  # int64 [num_words]: the cumulative counts
    num_types: int  # number of different words in the corpus
    place: dict[str, int]  # index of each given word
    number: dict[str, int]  # count of each given word in the corpus


class WordCounts:
    """Adds up word counts; counts that do not fit into memory are written to sorted files."""

    def __init__(self, folder: Path) -> None:
        """``folder`` for the files must not exist; it is created when needed."""
        self._folder = folder
        self._held: Counter[str] = Counter()
        self._runs: list[Path] = []

    def add(self, counts: Mapping[str, int]) -> None:
        self._held.update(counts)
        if len(self._held) >= MOST_HELD:
            self._folder.mkdir(parents=True, exist_ok=True)
            run = self._folder / f"{len(self._runs)}.txt"
            with run.open("w", encoding="utf-8") as file:
                file.writelines(f"{word}\t{number}\n" for word, number in self._sorted())
            self._runs.append(run)
            self._held.clear()

    def vocabulary(self, words: Iterable[str]) -> Vocabulary:
        """Returns the vocabulary with the given ``words``, which need not occur in the corpus."""
        given = sorted({*words})
        runs = [_read(run) for run in self._runs]
        merged = heapq.merge(self._sorted(), *runs, ((word, 0) for word in given), key=_WORD)
        ends, num_types, total = array("q"), 0, 0
        place, number_of = {}, {}
        waiting = iter([*given, None])
        next_given = next(waiting)
        for word, same in groupby(merged, key=_WORD):
            number = sum(count for _, count in same)
            if word == next_given:
                place[word], number_of[word] = len(ends), number
                next_given = next(waiting)
            total += number
            num_types += number > 0
            ends.append(total)
        return Vocabulary(np.array(ends, dtype=np.int64), num_types, place, number_of)

    def _sorted(self) -> Iterator[tuple[str, int]]:
        return iter(sorted(self._held.items()))


_WORD = itemgetter(0)


def _read(run: Path) -> Iterator[tuple[str, int]]:
    with run.open(encoding="utf-8") as file:
        for line in file:
            word, _, number = line.partition("\t")
            yield word, int(number)
