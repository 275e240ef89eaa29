import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
from jaxtyping import Float

from stages.baselines._baseline import Baseline, Row, Score
from stages.baselines._linear import fitted
from stages.tasks._tags import OUTSIDE

PART_LENGTHS = (2, 3, 4)  # letters
BIASES = (0.0, 0.3, 0.6, 1.0, 1.5)  # subtracted from the natural log score of O
WEIGHTS = (0.0, 0.5, 1.0)  # weights of transitions relative to words


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
        self.window, self.affix_length, self.C = window, affix_length, sorted(C)
        self.num_tries = len(C) + len(WEIGHTS) * len(BIASES) - 1  # the first is in both choices

    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        from sklearn.feature_extraction.text import CountVectorizer
        from sklearn.linear_model import LogisticRegression

        analyzer: Any = list  # features need no analysis
        self.vectorizer = CountVectorizer(analyzer=analyzer, binary=True)
        features = self.vectorizer.fit_transform(self._words(train))
        held_out = self.vectorizer.transform(self._words(validation))
        sequences = [row["tags"] for row in train]
        targets = [tag for tags in sequences for tag in tags]
        self.tags = sorted(set(targets))
        self._learn_transitions(sequences)
        models = [fitted(LogisticRegression(C=c, max_iter=2000), features, targets) for c in self.C]
        settings = [*product(WEIGHTS, BIASES)]
        of_model = {model: model.predict_proba(held_out) for model in models}
        self.classifier = max(
            models,
            key=lambda model: score(
                validation, self._decoded(validation, of_model[model], settings[0])
            ),
        )
        probabilities = of_model[self.classifier]
        self.setting = max(
            settings,
            key=lambda setting: score(
                validation, self._decoded(validation, probabilities, setting)
            ),
        )

    def predict(self, rows: Sequence[Row]) -> list[str]:
        features = self.vectorizer.transform(self._words(rows))
        return self._decoded(rows, self.classifier.predict_proba(features), self.setting)

    def _learn_transitions(self, sequences: Sequence[Sequence[str]]) -> None:
        """Learns log(p(tag | tag before) / p(tag)), with 0.5 added to the count of each pair, and
        which transitions BIO allows."""
        pairs = Counter(pair for tags in sequences for pair in pairwise(tags))
        counts = np.array([[pairs[a, b] + 0.5 for b in self.tags] for a in self.tags])
        singles = Counter(tag for tags in sequences for tag in tags)
        everywhere = np.array([singles[tag] for tag in self.tags])
        following = counts / counts.sum(axis=1, keepdims=True)
        self.transitions = np.log(following / (everywhere / everywhere.sum()))
        begins = [not tag.startswith("I-") for tag in self.tags]
        continues = [[a in (f"B-{b[2:]}", b) for b in self.tags] for a in self.tags]
        self.first = np.where(begins, 0.0, -np.inf)
        self.allowed = np.array(begins) | np.array(continues)

    def _decoded(
        self,
        rows: Sequence[Row],
        probabilities: Float[np.ndarray, "words tag"],
        setting: tuple[float, float],
    ) -> list[str]:
        """Returns the tags of each row, joined. ``probabilities`` has the words of all rows."""
        weight, bias = setting
        with np.errstate(divide="ignore"):
            scores = np.log(probabilities) - bias * (np.array(self.tags) == OUTSIDE)
        ends = np.cumsum([len(row["words"]) for row in rows])
        transitions = np.where(self.allowed, weight * self.transitions, -np.inf)
        sequences = (
            best_sequence(of_row, transitions, self.first) for of_row in np.split(scores, ends[:-1])
        )
        return [" ".join(self.tags[i] for i in sequence) for sequence in sequences]

    def _words(self, rows: Sequence[Row]) -> Iterator[list[str]]:
        """Yields the features of each word of each row."""
        for row in rows:
            edge = ["<edge>"] * max(self.window, 2)
            words = [*edge, *(word.lower() for word in row["words"]), *edge]
            shapes = [*edge, *map(shape, row["words"]), *edge]
            around = range(-self.window, self.window + 1)
            for i, word in enumerate(words[len(edge) : -len(edge)], start=len(edge)):
                before, after = row["words"][: i - len(edge)], words[i + 1]
                marked = f"<{word}>"
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
                    *(
                        f"*{marked[i : i + n]}"
                        for n in PART_LENGTHS
                        for i in range(len(marked) - n + 1)
                    ),
                    f"length {min(len(word), 12)}",
                    *(["first"] if not before else []),
                    *(["last"] if len(before) == len(row["words"]) - 1 else []),
                    f"count {min(words.count(word), 3)}",
                    *(["in brackets"] if before.count("(") > before.count(")") else []),
                    *(["in quotes"] if sum(w in ('"', "'") for w in before) % 2 else []),
                ]


def best_sequence(
    scores: Float[np.ndarray, "word tag"],
    transitions: Float[np.ndarray, "before tag"],
    first: Float[np.ndarray, " tag"],
) -> list[int]:
    """Returns the sequence of tags with the largest sum of the scores of its words, its transitions
    and its first tag (Viterbi 1967). Ties go to the tag with the lower index, from the last word
    backwards."""
    if not len(scores):
        return []
    best, steps = first + scores[0], []
    for of_word in scores[1:]:
        through = best[:, None] + transitions
        steps.append(through.argmax(axis=0))
        best = through.max(axis=0) + of_word
    path = [int(best.argmax())]
    for step in reversed(steps):
        path.append(int(step[path[-1]]))
    return path[::-1]


def shape(word: str) -> str:
    """Returns the shape of a word, without repetitions: ``a_0A()`` for ``array_2D()``."""
    classes = re.sub(r"[^\W\d_]", lambda m: "A" if m[0].isupper() else "a", word)
    return re.sub(r"(.)\1+", r"\1", re.sub(r"\d", "0", classes))
