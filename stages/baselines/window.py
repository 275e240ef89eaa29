import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float

from stages.baselines._baseline import Baseline, Row, Score
from stages.baselines._linear import fitted
from stages.baselines._viterbi import best_sequence, first_scores, transition_scores
from stages.kinds._tags import OUTSIDE

PART_LENGTHS = (2, 3, 4)  # letters
BIASES = (0.0, 0.3, 0.6, 1.0, 1.5)  # subtracted from the natural log score of O
WEIGHTS = (0.0, 0.5, 1.0)  # weights of transitions relative to words


@dataclass(frozen=True)
class _Decoder:
    """Decodes the probabilities of each word's tags into a sequence."""

    tags: list[str]
    transitions: Float[np.ndarray, "before tag"]
    bias: float

    def __call__(
        self, rows: Sequence[Row], probabilities: Float[np.ndarray, "words tag"]
    ) -> list[str]:
        """Returns the tags of each row, joined. ``probabilities`` has the words of all rows."""
        with np.errstate(divide="ignore"):
            scores = np.log(probabilities) - self.bias * (np.array(self.tags) == OUTSIDE)
        ends = np.cumsum([len(row["words"]) for row in rows])
        first = first_scores(self.tags)
        sequences = (
            best_sequence(of_row, self.transitions, first) if len(of_row) else []
            for of_row in np.split(scores, ends[:-1])
        )
        return [" ".join(self.tags[i] for i in sequence) for sequence in sequences]


class Window(Baseline):
    """Logistic regression for each word over features of the word and its neighbours, then the best
    sequence of tags.

    The features are the words within ``window``, their shapes and the pairs of the nearest words;
    the word's parts of 2 to 4 letters, its first and last 1 to ``affix_length`` letters, its
    length, its count in the sentence, and whether it is first, last, in brackets or in quotes. A
    transition between tags has a higher score if training has it more often than expected. An I-
    that continues no span is never predicted (BIO).

    Validation chooses ``C``, the inverse strength of regularisation, then the weight of transitions
    and a bias against O, the tag of most words.
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
        self.num_tries = len(C) + len(WEIGHTS) * len(BIASES) - 1  # decoders[0] is in both choices

    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        from sklearn.feature_extraction.text import CountVectorizer
        from sklearn.linear_model import LogisticRegression

        analyzer: Any = list  # features need no analysis
        self.vectorizer = CountVectorizer(analyzer=analyzer, binary=True)
        features = self.vectorizer.fit_transform(self._words(train))
        held_out = self.vectorizer.transform(self._words(validation))
        sequences = [row["tags"] for row in train]
        targets = [tag for tags in sequences for tag in tags]
        tags = sorted(set(targets))
        decoders = [
            _Decoder(tags, transition_scores(sequences, tags, weight=weight), bias)
            for weight, bias in product(WEIGHTS, BIASES)
        ]
        models = (LogisticRegression(C=c, max_iter=2000) for c in sorted(self.C))
        self.classifier = max(
            (fitted(model, features, targets) for model in models),
            key=lambda model: score(
                validation, decoders[0](validation, model.predict_proba(held_out))
            ),
        )
        probabilities = self.classifier.predict_proba(held_out)
        self.decoder = max(
            decoders, key=lambda decoder: score(validation, decoder(validation, probabilities))
        )

    def predict(self, rows: Sequence[Row]) -> list[str]:
        features = self.vectorizer.transform(self._words(rows))
        return self.decoder(rows, self.classifier.predict_proba(features))

    def _words(self, rows: Sequence[Row]) -> Iterator[list[str]]:
        """Yields the features of each word of each row."""
        for row in rows:
            edge = ["<edge>"] * max(self.window, 2)
            words = [*edge, *(word.lower() for word in row["words"]), *edge]
            shapes = [*edge, *map(shape, row["words"]), *edge]
            around = range(-self.window, self.window + 1)
            for i, word in enumerate(words[len(edge) : -len(edge)], start=len(edge)):
                before, after = row["words"][: i - len(edge)], words[i + 1]
                yield [
                    "bias",
                    *(f"{j}={words[i + j]}" for j in around),
                    *(f"{j}~{shapes[i + j]}" for j in around),
                    f"-1,0={words[i - 1]} {word}",
                    f"0,1={word} {after}",
                    f"-1,1={words[i - 1]} {after}",
                    f"-2,-1={words[i - 2]} {words[i - 1]}",
                    f"1,2={after} {words[i + 2]}",
                    f"-1,0,1~{shapes[i - 1]} {shapes[i]} {shapes[i + 1]}",
                    *(f"^{word[:n]}" for n in range(1, self.affix_length + 1)),
                    *(f"{word[-n:]}$" for n in range(1, self.affix_length + 1)),
                    *(f"*{part}" for part in parts(word)),
                    f"length {min(len(word), 12)}",
                    *(["first"] if not before else []),
                    *(["last"] if len(before) == len(row["words"]) - 1 else []),
                    f"count {min(words.count(word), 3)}",
                    *(["in brackets"] if before.count("(") > before.count(")") else []),
                    *(["in quotes"] if sum(w in ('"', "'") for w in before) % 2 else []),
                ]


def parts(word: str) -> list[str]:
    """Returns the parts of 2 to 4 letters of a word, after its ends are marked: ``<word>``."""
    marked = f"<{word}>"
    return [marked[i : i + n] for n in PART_LENGTHS for i in range(len(marked) - n + 1)]


def shape(word: str) -> str:
    """Returns the shape of a word, without repetitions: ``a_0A()`` for ``array_2D()``."""
    classes = re.sub(r"[^\W\d_]", lambda m: "A" if m[0].isupper() else "a", word)
    return re.sub(r"(.)\1+", r"\1", re.sub(r"\d", "0", classes))
