from collections.abc import Sequence
from typing import Any

from stages.baselines._tfidf import TfidfClassifier


class Characters(TfidfClassifier):
    """TF-IDF of the n-grams of characters in a text's words, and logistic regression over them.

    Parts of words tell what whole words that were never seen do not: names, misspelt words, other
    forms of a word. ``C`` as of ``tfidf``.
    """

    def __init__(
        self, *, max_ngram: int = 4, C: Sequence[float] = (1.0, 10.0, 100.0, 1000.0)
    ) -> None:
        super().__init__(max_ngram=max_ngram, C=C)

    def features(self) -> Any:
        from sklearn.feature_extraction.text import TfidfVectorizer

        return TfidfVectorizer(
            analyzer="char_wb", ngram_range=(1, self.max_ngram), sublinear_tf=True
        )
