from collections.abc import Sequence
from typing import Any

from stages.baselines._baseline import tfidf_of_words
from stages.baselines._tfidf import TfidfClassifier


class Tfidf(TfidfClassifier):
    """TF-IDF of a text's words, signs and their n-grams, and logistic regression over them.

    ``C``, the inverse strength of regularisation, is the value that scores best on validation.
    The two texts of a pair are joined.
    """

    def __init__(
        self, *, max_ngram: int = 2, C: Sequence[float] = (1.0, 10.0, 100.0, 1000.0)
    ) -> None:
        super().__init__(max_ngram=max_ngram, C=C)

    def features(self) -> Any:
        return tfidf_of_words(self.max_ngram)
