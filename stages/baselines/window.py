import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from stages.baselines._baseline import Baseline, Row, Score, logistic


class Window(Baseline):
    """Logistic regression for each word over what it and its neighbours look like.

    Features: the words within ``window``, their shapes and the pairs with the nearest neighbours;
    the word's own first and last 1 to ``affix_length`` letters. ``C``, the inverse strength of
    regularisation, is the value that scores best on validation. Tags are BIO: an I- that continues
    nothing becomes a B-.
    """

    fits = ("tagging",)

    def __init__(
        self,
        *,
        window: int = 2,
        affix_length: int = 3,
        C: Sequence[float] = (0.1, 1.0, 10.0, 100.0),
    ) -> None:
        if window < 0 or affix_length < 0 or not C or min(C) <= 0:
            raise ValueError("window and affix_length must be at least 0 and every C above 0")
        self.window, self.affix_length, self.C = window, affix_length, C
        self.num_tries = len(C)

    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        from sklearn.feature_extraction.text import CountVectorizer

        analyzer: Any = list  # a word's features are taken as they are
        self.vectorizer = CountVectorizer(analyzer=analyzer, binary=True)
        targets = [tag for row in train for tag in row["tags"]]
        features = self.vectorizer.fit_transform(self._words(train))
        held_out = self.vectorizer.transform(self._words(validation))
        self.classifier = max(
            (logistic(features, targets, c) for c in sorted(self.C)),
            key=lambda classifier: score(
                validation, _join(validation, classifier.predict(held_out))
            ),
        )

    def predict(self, rows: Sequence[Row]) -> list[str]:
        return _join(rows, self.classifier.predict(self.vectorizer.transform(self._words(rows))))

    def _words(self, rows: Sequence[Row]) -> Iterator[list[str]]:
        """The features of each word of each row."""
        for row in rows:
            edge = ["<edge>"] * max(self.window, 1)
            words = [*edge, *(word.lower() for word in row["words"]), *edge]
            shapes = [*edge, *map(shape, row["words"]), *edge]
            for i, word in enumerate(words[len(edge) : -len(edge)], start=len(edge)):
                yield [
                    "bias",
                    *(f"{j}={words[i + j]}" for j in range(-self.window, self.window + 1)),
                    *(f"{j}~{shapes[i + j]}" for j in range(-self.window, self.window + 1)),
                    f"-1,0={words[i - 1]} {word}",
                    f"0,1={word} {words[i + 1]}",
                    *(f"^{word[:n]}" for n in range(1, self.affix_length + 1)),
                    *(f"{word[-n:]}$" for n in range(1, self.affix_length + 1)),
                ]


def shape(word: str) -> str:
    """``array_2D()`` as ``a_0A()``: case, digits and signs, each repetition once."""
    classes = re.sub(r"[^\W\d_]", lambda m: "A" if m[0].isupper() else "a", word)
    return re.sub(r"(.)\1+", r"\1", re.sub(r"\d", "0", classes))


def repair(tags: Sequence[str]) -> list[str]:
    """The same tags, with B- for each I- that continues no entity of its kind."""
    repaired: list[str] = []
    for tag in tags:
        kind = tag[2:]
        if tag.startswith("I-") and (not repaired or repaired[-1] not in (f"B-{kind}", tag)):
            tag = f"B-{kind}"
        repaired.append(tag)
    return repaired


def _join(rows: Sequence[Row], tags: np.ndarray) -> list[str]:
    """The tags of all words, cut into rows."""
    remaining = iter(tags.tolist())
    return [" ".join(repair([next(remaining) for _ in row["words"]])) for row in rows]
