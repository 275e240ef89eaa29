"""Near-duplicates: test texts that are almost equal to a text of train.

Two texts are near-duplicates if the Jaccard similarity of their word 3-grams (the number of common
ones divided by the number of all; Broder 1997) is at least 0.8. In a text of fewer than 29 words, a
single changed word can reduce it below 0.8. So two such texts are also near-duplicates if the
Jaccard similarity of their words, in any order, is at least 0.8. The search is exact: nothing is
hashed or sampled.

Words are defined as in ``contamination``, so that case and punctuation do not count. In a script
without blanks a word is a run of characters up to a punctuation mark, and few texts are
near-duplicates.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from stages.evaluation.contamination import words
from stages.kinds._cells import Row
from stages.kinds._kind import Kind

LEAST = 0.8  # lowest similarity of near-duplicates
GRAM = 3  # words
SHORT = 29  # words; shorter texts are also compared by their words
CHUNK = 500  # train texts compared at once, because the similarities of all may exceed memory
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
    test_words, train_words = [[words(text) for text in texts] for texts in (test, train)]
    best: dict[int, Nearest] = {}
    for place, candidate in chain(
        _similar(test_words, train_words, GRAM, range(GRAM, np.iinfo(int).max)),
        _similar(test_words, train_words, 1, range(1, SHORT)),
    ):
        if place not in best or candidate.similarity > best[place].similarity:
            best[place] = candidate
    return best


def _similar(
    test: Sequence[Sequence[str]], train: Sequence[Sequence[str]], n: int, lengths: range
) -> Iterator[tuple[int, Nearest]]:
    """Yields near-duplicates by their n-grams, among texts whose number of words is in ``lengths``.
    Of each chunk of train, only the text most similar to the test text is yielded, because a text
    made from a template may be a near-duplicate of all train texts."""
    from sklearn.feature_extraction.text import CountVectorizer  # the import takes a second

    test_at, train_at = (
        [place for place, text in enumerate(texts) if len(text) in lengths]
        for texts in (test, train)
    )
    if not (test_at and train_at):
        return
    # The vocabulary has only test's n-grams, since all others of train are in no intersection.
    vectorizer = CountVectorizer(analyzer=lambda grams: grams, binary=True, dtype=np.int32)
    test_grams = [_grams(test[place], n) for place in test_at]
    by_gram = vectorizer.fit_transform(test_grams).T.tocsr()
    test_sizes = np.array([len(grams) for grams in test_grams])
    for first in range(0, len(train_at), CHUNK):
        places = train_at[first : first + CHUNK]
        grams = [_grams(train[place], n) for place in places]
        common = (vectorizer.transform(grams) @ by_gram).tocoo()
        sizes = np.array([len(of_text) for of_text in grams])
        similarity = common.data / (sizes[common.row] + test_sizes[common.col] - common.data)
        near = np.flatnonzero(similarity >= LEAST)
        near = near[np.lexsort((common.row[near], -similarity[near], common.col[near]))]
        near = near[np.unique(common.col[near], return_index=True)[1]]  # the first of each column
        numbers = (values[near].tolist() for values in (common.row, common.col, similarity))
        for row, column, share in zip(*numbers, strict=True):
            yield test_at[column], Nearest(places[row], share)


def _grams(text: Sequence[str], n: int) -> list[str]:
    """Returns each n-gram of a text once."""
    return [*{" ".join(text[i : i + n]) for i in range(len(text) - n + 1)}]


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

    @property
    def example(self) -> str:
        return f"{self.test!r} in test, {self.train!r} in train"


def near_duplicates(test: Sequence[Row], train: Sequence[Row], kind: Kind) -> NearDuplicates:
    """Returns the near-duplicates of test rows in train, with an example: the pair that is least
    similar, so that readers see what still counts as one."""
    texts, among = [[" ".join(kind.texts(row)) for row in rows] for rows in (test, train)]
    similar = nearest(texts, among)
    if not similar:
        return NearDuplicates(len(test), 0)
    place, least = min(similar.items(), key=lambda item: (item[1].similarity, item[0]))
    pair = [text[:MOST_SHOWN] for text in (texts[place], among[least.place])]
    return NearDuplicates(len(test), len(similar), least.similarity, *pair)
