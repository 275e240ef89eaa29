from collections.abc import Sequence
from typing import Any

from threadpoolctl import threadpool_limits

from stages.baselines._baseline import Baseline, Row, Score, check_tries, tfidf_of_words
from stages.kinds.regression import written


class Ridge(Baseline):
    """Ridge regression over TF-IDF of a text's words, signs and their n-grams.

    Of a pair it is over the cosine of its two texts, the product and the absolute difference of
    their features. ``alpha``, the strength of regularisation, is the value that scores best on
    validation.
    """

    fits = ("regression",)

    def __init__(
        self, *, max_ngram: int = 2, alpha: Sequence[float] = (0.1, 1.0, 10.0, 100.0)
    ) -> None:
        check_tries(max_ngram, alpha=alpha)
        self.max_ngram, self.alpha, self.num_tries = max_ngram, alpha, len(alpha)

    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        from sklearn import linear_model

        self.vectorizer = tfidf_of_words(self.max_ngram)
        self.vectorizer.fit([text for row in train for text in score.kind.texts(row)])
        features, held_out = self._features(train), self._features(validation)
        targets = [row["target"] for row in train]
        with threadpool_limits(1):  # how many there are would show in the last digits
            self.model = max(
                (linear_model.Ridge(alpha=a).fit(features, targets) for a in sorted(self.alpha)),
                key=lambda model: score(validation, _written(model, held_out)),
            )

    def predict(self, rows: Sequence[Row]) -> list[str]:
        return _written(self.model, self._features(rows))

    def _features(self, rows: Sequence[Row]) -> Any:  # sparse
        from scipy import sparse

        first = self.vectorizer.transform([row["text"] for row in rows])
        if "text_pair" not in rows[0]:
            return first
        second = self.vectorizer.transform([row["text_pair"] for row in rows])
        product = first.multiply(second)
        return sparse.hstack(
            [sparse.csr_matrix(product.sum(axis=1)), product, abs(first - second)], format="csr"
        )


def _written(model: Any, features: Any) -> list[str]:
    return [written(value) for value in model.predict(features).tolist()]
