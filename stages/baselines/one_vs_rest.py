from collections.abc import Sequence
from typing import Any

from stages.baselines._baseline import Baseline, Row, Score, check_tries, logistic, tfidf_of_words
from stages.kinds.multi_label import written


class OneVsRest(Baseline):
    """TF-IDF of a text's words, signs and their n-grams, and for each label by itself a logistic
    regression over them (binary relevance; Tsoumakas and Katakis 2007).

    ``C``, the inverse strength of regularisation, is the value that scores best on validation, the
    same for all labels. The two texts of a pair are joined.
    """

    fits = ("multi_label",)

    def __init__(
        self, *, max_ngram: int = 2, C: Sequence[float] = (1.0, 10.0, 100.0, 1000.0)
    ) -> None:
        check_tries(max_ngram, C=C)
        self.max_ngram, self.C, self.num_tries = max_ngram, C, len(C)

    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        self.kind = score.kind
        self.vectorizer = tfidf_of_words(self.max_ngram)
        features = self.vectorizer.fit_transform(map(self._text, train))
        labels = sorted({label for row in train for label in row["labels"]})
        has = {label: [label in row["labels"] for row in train] for label in labels}
        fitted = [
            {label: logistic(features, targets, c) for label, targets in has.items()}
            for c in sorted(self.C)
        ]
        held_out = self.vectorizer.transform(map(self._text, validation))
        self.models = max(
            fitted, key=lambda models: score(validation, _predicted(models, held_out))
        )

    def predict(self, rows: Sequence[Row]) -> list[str]:
        return _predicted(self.models, self.vectorizer.transform(map(self._text, rows)))

    def _text(self, row: Row) -> str:
        return " ".join(self.kind.texts(row))


def _predicted(models: dict[str, Any], features: Any) -> list[str]:
    found: list[list[str]] = [[] for _ in range(features.shape[0])]
    for label, model in models.items():
        for labels, has in zip(found, model.predict(features).tolist(), strict=True):
            labels += [label] if has else []
    return [written(labels) for labels in found]
