from typing import Any

from stages.baselines._baseline import Count, Strengths
from stages.baselines._linear import LinearBaseline


class LinearSvc(LinearBaseline):
    """A linear support vector machine over TF-IDF of a text's words, their n-grams and the parts of
    its words; for several labels, one for each. It gives no probabilities.

    Validation chooses ``C``, the inverse strength of regularisation. The two texts of a pair are
    joined.
    """

    fits = ("classification", "multi_label")
    features = ("words_and_parts",)

    def __init__(
        self, *, max_ngram: Count = 2, max_part: Count = 5, C: Strengths = (0.1, 1.0, 10.0)
    ) -> None:
        self.max_ngram, self.max_part, self.C = max_ngram, max_part, sorted(C)

    def models(self) -> list[Any]:
        from sklearn.svm import LinearSVC

        return [LinearSVC(C=c, random_state=0) for c in self.C]
