from typing import Any

from stages.baselines._baseline import Strengths
from stages.baselines._linear import LinearBaseline


class Tfidf(LinearBaseline):
    """Logistic regression over TF-IDF of words and their n-grams, parts of words, or both; for
    numbers ridge regression; for several labels one regression each.

    Parts of words help with words that training does not have: names, misspelt words, other forms
    of a word. Validation chooses the features, whether all classes have equal weights, and ``C``,
    the inverse strength of regularisation (for numbers ``alpha``, its strength). The two texts of a
    pair are joined, or compared for numbers.
    """

    fits = ("classification", "multi_label", "regression")

    def __init__(
        self,
        *,
        C: Strengths = (1.0, 10.0, 100.0, 1000.0),
        alpha: Strengths = (0.1, 1.0, 10.0, 100.0),
    ) -> None:
        self.C, self.alpha = sorted(C), sorted(alpha)

    def models(self) -> list[Any]:
        from sklearn.linear_model import LogisticRegression, Ridge

        if self.kind.name == "regression":
            return [Ridge(alpha=alpha) for alpha in self.alpha]
        return [
            LogisticRegression(C=c, class_weight=weights, max_iter=2000)
            for weights in (None, "balanced")
            for c in self.C
        ]
