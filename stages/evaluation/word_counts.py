"""Counts of the words of a corpus, which may have more different ones than memory holds."""

import heapq
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

MOST_HELD = 2**20  # different words; about 200 bytes each


class Vocabulary(NamedTuple):
    """All words in their order, with how often the corpus has each."""

    ends: np.ndarray  # int64 [num_words]: the sums of all counts up to each word
    num_types: int  # words that the corpus has
    place: dict[str, int]  # of the words that were asked for
    number: dict[str, int]  # how often the corpus has them


class WordCounts:
    """Counts that are added up; what is too much for memory lies sorted in files of ``folder``."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is made if it is needed, and must not be there."""
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
        """With ``words``, which the corpus may not have."""
        asked = sorted({*words})
        runs = [_read(run) for run in self._runs]
        merged = heapq.merge(self._sorted(), *runs, ((word, 0) for word in asked), key=_WORD)
        ends, num_types, total = array("q"), 0, 0
        place, number_of = {}, {}
        waiting = iter([*asked, None])
        next_asked = next(waiting)
        for word, same in groupby(merged, key=_WORD):
            number = sum(each for _, each in same)
            if word == next_asked:
                place[word], number_of[word] = len(ends), number
                next_asked = next(waiting)
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
