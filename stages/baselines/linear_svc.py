from typing import Any

from stages.baselines._baseline import Strengths
from stages.baselines._linear import LinearBaseline


class LinearSvc(LinearBaseline):
    """A linear support vector machine over TF-IDF of words, their n-grams and parts of words; for
    several labels, one for each. It gives no probabilities.

    Validation chooses ``C``, the inverse strength of regularisation. The two texts of a pair are
    joined.
    """

    fits = ("classification", "multi_label")
    features = ("words_and_parts",)

    def __init__(self, *, C: Strengths = (0.1, 1.0, 10.0)) -> None:
        self.C = sorted(C)

    def models(self) -> list[Any]:
        from sklearn.svm import LinearSVC

        return [LinearSVC(C=c, random_state=0) for c in self.C]
