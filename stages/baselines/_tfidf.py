"""Classifiers of texts by TF-IDF: what they have in common."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from stages.baselines._baseline import Baseline, Row, Score, check_tries, logistic


class TfidfClassifier(Baseline):
    """Logistic regression over ``features``. The two texts of a pair are joined."""

    fits = ("classification",)

    def __init__(self, *, max_ngram: int, C: Sequence[float]) -> None:
        check_tries(max_ngram, C=C)
        self.max_ngram, self.C, self.num_tries = max_ngram, C, len(C)

    @abstractmethod
    def features(self) -> Any:
        """scikit-learn's TF-IDF, not yet fitted."""

    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        self.vectorizer = self.features()
        targets = [row["label"] for row in train]
        features = self.vectorizer.fit_transform(map(_text, train))
        held_out = self.vectorizer.transform(map(_text, validation))
        self.classifier = max(
            (logistic(features, targets, c) for c in sorted(self.C)),
            key=lambda classifier: score(validation, classifier.predict(held_out).tolist()),
        )

    def predict(self, rows: Sequence[Row]) -> list[str]:
        return self.classifier.predict(self.vectorizer.transform(map(_text, rows))).tolist()

    def probabilities(self, rows: Sequence[Row]) -> list[float | None]:
        found = self.classifier.predict_proba(self.vectorizer.transform(map(_text, rows)))
        return found.max(axis=1).tolist()


def _text(row: Row) -> str:
    return f"{row['text']} {row.get('text_pair', '')}"
