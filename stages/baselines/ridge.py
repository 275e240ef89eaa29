from collections.abc import Iterator, Sequence
from typing import Any

from threadpoolctl import threadpool_limits

from stages.baselines._baseline import Row
from stages.baselines._linear import LinearBaseline, check_tries
from stages.kinds.regression import written


class Ridge(LinearBaseline):
    """Ridge regression over TF-IDF of a text's words and their n-grams, or of the parts of its
    words, or of both.

    For a pair of texts, the features are their cosine, and the product and the absolute difference
    of their TF-IDF. Validation chooses the features and ``alpha``, the strength of regularisation.
    """

    fits = ("regression",)

    def __init__(
        self,
        *,
        max_ngram: int = 2,
        max_part: int = 5,
        alpha: Sequence[float] = (0.1, 1.0, 10.0, 100.0),
    ) -> None:
        check_tries(max_ngram=max_ngram, max_part=max_part, alpha=alpha)
        self.alpha = alpha
        super().__init__(max_ngram=max_ngram, max_part=max_part, num_models=len(alpha))

    def texts(self, rows: Sequence[Row]) -> list[str]:
        return [text for row in rows for text in self.kind.texts(row)]

    def features(self, vectorizer: Any, rows: Sequence[Row]) -> Any:  # sparse
        from scipy import sparse

        first = vectorizer.transform([row["text"] for row in rows])
        if "text_pair" not in rows[0]:
            return first
        second = vectorizer.transform([row["text_pair"] for row in rows])
        product = first.multiply(second)
        return sparse.hstack(
            [sparse.csr_matrix(product.sum(axis=1)), product, abs(first - second)], format="csr"
        )

    def models(self, features: Any, train: Sequence[Row]) -> Iterator[Any]:
        from sklearn import linear_model

        targets = [row["target"] for row in train]
        for alpha in sorted(self.alpha):
            with threadpool_limits(1):  # the last digits depend on the number of threads
                yield linear_model.Ridge(alpha=alpha).fit(features, targets)

    def answers(self, model: Any, features: Any, rows: Sequence[Row]) -> list[str]:
        return [written(value) for value in model.predict(features).tolist()]
