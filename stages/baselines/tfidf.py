from collections.abc import Sequence
from typing import Any

from stages.baselines._baseline import Baseline, Row, Score, check_tries, logistic, tfidf_of_words


class Tfidf(Baseline):
    """TF-IDF of a text's words, signs and their n-grams, and logistic regression over them.

    ``C``, the inverse strength of regularisation, is the value that scores best on validation.
    The two texts of a pair are joined.
    """

    fits = ("classification",)

    def __init__(
        self, *, max_ngram: int = 2, C: Sequence[float] = (1.0, 10.0, 100.0, 1000.0)
    ) -> None:
        check_tries(max_ngram, C=C)
        self.max_ngram, self.C, self.num_tries = max_ngram, C, len(C)

    def features(self) -> Any:
        """Of scikit-learn, not yet fitted."""
        return tfidf_of_words(self.max_ngram)

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
