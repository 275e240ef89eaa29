from collections.abc import Iterator, Sequence
from typing import Any

from stages.baselines._baseline import Row
from stages.baselines._linear import (
    LinearBaseline,
    check_tries,
    fitted,
    logistic_regressions,
    support_vector_machines,
)


class Tfidf(LinearBaseline):
    """A linear classifier over TF-IDF of a text's words and their n-grams, or of the parts of its
    words, or of both.

    Parts of words help with words that training does not have: names, misspelt words, other forms
    of a word. Validation chooses the features, logistic regression or a support vector machine,
    whether all classes have equal weights, and ``C``, the inverse strength of regularisation. The
    two texts of a pair are joined.
    """

    fits = ("classification",)

    def __init__(
        self,
        *,
        max_ngram: int = 2,
        max_part: int = 5,
        C: Sequence[float] = (1.0, 10.0, 100.0, 1000.0),
    ) -> None:
        check_tries(max_ngram=max_ngram, max_part=max_part, C=C)
        self.C = C
        super().__init__(max_ngram=max_ngram, max_part=max_part, num_models=4 * len(C))

    def models(self, features: Any, train: Sequence[Row]) -> Iterator[Any]:
        targets = [row["label"] for row in train]
        unfitted = logistic_regressions(self.C) + support_vector_machines(self.C)
        return (fitted(model, features, targets) for model in unfitted)

    def answers(self, model: Any, features: Any, rows: Sequence[Row]) -> list[str]:
        return model.predict(features).tolist()

    def probabilities(self, rows: Sequence[Row]) -> list[float | None]:
        """Returns the probabilities of the answers; None for a support vector machine."""
        if not hasattr(self.model, "predict_proba"):
            return [None] * len(rows)
        by_class = self.model.predict_proba(self.features(self.vectorizer, rows))
        return by_class.max(axis=1).tolist()
