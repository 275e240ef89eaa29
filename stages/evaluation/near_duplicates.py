"""Near-duplicates: test texts that are almost equal to a text of train.

Two texts are near-duplicates if the Jaccard similarity of their word 3-grams (the number of common
ones divided by the number of all; Broder 1997) is at least 0.8. In a text of fewer than 29 words, a
single changed word can reduce it below 0.8. So two such texts are also near-duplicates if the
Jaccard similarity of their words, in any order, is at least 0.8. The search is exact: nothing is
hashed or sampled. Words are defined as in ``contamination``.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stages.evaluation.contamination import words
from stages.tasks._cells import Row
from stages.tasks._task import Task

LEAST = 0.8  # lowest similarity of near-duplicates
GRAM = 3  # words
SHORT = 29  # words; shorter texts are also compared by their words
MOST_SHOWN = 100  # characters of an example
NOTEWORTHY_SHARE = 0.01  # of a task's test rows


@dataclass(frozen=True)
class Nearest:
    """The train text that is most similar to a test text."""

    place: int  # index in train
    similarity: float


def nearest(test: Sequence[str], train: Sequence[str]) -> dict[int, Nearest]:
    """Returns, for each test text with a near-duplicate in train, the most similar train text (the
    first of equally similar ones). Keys are indices of ``test``."""
    sides = [[words(text) for text in texts] for texts in (test, train)]
    best: dict[int, Nearest] = {}
    for n, longest in ((GRAM, math.inf), (1, SHORT - 1)):
        grams = [
            [_grams(text, n) if len(text) <= longest else frozenset() for text in side]
            for side in sides
        ]
        for place, candidate in _similar(*grams):
            if place not in best or candidate.similarity > best[place].similarity:
                best[place] = candidate
    return best


def _similar(
    test: Sequence[frozenset[str]], train: Sequence[frozenset[str]]
) -> Iterator[tuple[int, Nearest]]:
    """Yields pairs of texts whose n-grams are similar, by the order of train.

    Similar sets share all but a few of the smaller one's n-grams, so texts are compared only if
    they share one of its rarest (prefix filtering; Chaudhuri et al. 2006).
    """
    counts = Counter(gram for grams in (*test, *train) for gram in grams)

    def rarest(grams: frozenset[str]) -> list[str]:
        number = len(grams) - int(LEAST * len(grams) - 1e-9)  # at least one of these is shared
        return sorted(grams, key=lambda gram: (counts[gram], gram))[:number]

    having = defaultdict[str, list[int]](list)
    for place, grams in enumerate(test):
        for gram in rarest(grams):
            having[gram].append(place)
    for at, grams in enumerate(train):
        for place in {place for gram in rarest(grams) for place in having.get(gram, ())}:
            common = len(grams & test[place])
            similarity = common / (len(grams) + len(test[place]) - common)
            if similarity >= LEAST:
                yield place, Nearest(at, similarity)


def _grams(text: Sequence[str], n: int) -> frozenset[str]:
    return frozenset(" ".join(text[i : i + n]) for i in range(len(text) - n + 1))


@dataclass(frozen=True)
class NearDuplicates:
    """The near-duplicates in train of a task's test rows. The texts of a row are joined."""

    num_test: int
    number: int  # test rows with a near-duplicate in train
    similarity: float = 0.0  # of the example
    test: str = ""  # beginning of the example's test text; the example is the least similar pair
    train: str = ""

    @property
    def share(self) -> float:
        return self.number / self.num_test


def near_duplicates(test: Sequence[Row], train: Sequence[Row], kind: Task) -> NearDuplicates:
    """Returns the near-duplicates of test rows in train, with an example: the pair that is least
    similar, so that readers see what still counts as one."""
    texts, among = [[" ".join(kind.texts(row)) for row in rows] for rows in (test, train)]
    similar = nearest(texts, among)
    if not similar:
        return NearDuplicates(len(test), 0)
    place, least = min(similar.items(), key=lambda item: (item[1].similarity, item[0]))
    pair = [text[:MOST_SHOWN] for text in (texts[place], among[least.place])]
    return NearDuplicates(len(test), len(similar), least.similarity, *pair)
