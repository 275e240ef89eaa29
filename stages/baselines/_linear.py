"""Linear models over TF-IDF of texts, and the settings from which validation chooses."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from threadpoolctl import threadpool_limits

from stages.baselines._baseline import Baseline, Row, Score

# scikit-learn is imported inside functions, so that checking settings does not take two seconds.

FEATURES = ("words", "parts", "words_and_parts")
CLASS_WEIGHTS = (None, "balanced")  # equal weights of all rows, or of all classes
SVM_TIMES = 0.01  # C of a support vector machine relative to a logistic regression's


def tfidf_of_words(max_ngram: int) -> Any:
    """Returns scikit-learn's TF-IDF of words, signs and their n-grams, unfitted."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(
        ngram_range=(1, max_ngram), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]"
    )


def tfidf(features: str, *, max_ngram: int, max_part: int) -> Any:
    """Returns scikit-learn's TF-IDF of one of ``FEATURES``, unfitted. Parts of words are character
    n-grams."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    words = tfidf_of_words(max_ngram)
    parts = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, max_part), sublinear_tf=True)
    return {"words": words, "parts": parts, "words_and_parts": make_union(words, parts)}[features]


def logistic_regressions(C: Sequence[float]) -> list[Any]:
    """Returns an unfitted logistic regression for each weighting of the classes and each ``C``, the
    inverse strength of regularisation."""
    from sklearn.linear_model import LogisticRegression

    return [
        LogisticRegression(C=c, class_weight=weights, max_iter=2000)
        for weights in CLASS_WEIGHTS
        for c in sorted(C)
    ]


def support_vector_machines(C: Sequence[float]) -> list[Any]:
    """Returns an unfitted linear support vector machine for each weighting of the classes and a
    hundredth of each ``C``."""
    from sklearn.svm import LinearSVC

    return [
        LinearSVC(C=SVM_TIMES * c, class_weight=weights, random_state=0)
        for weights in CLASS_WEIGHTS
        for c in sorted(C)
    ]


def fitted(model: Any, features: Any, targets: Sequence[str] | Sequence[bool]) -> Any:
    """Returns the fitted model, or a constant classifier if all targets are equal.

    Fitting uses one thread. With several threads, short vectors would take ten times as long, and
    the last digits would depend on the number of threads.
    """
    from sklearn.dummy import DummyClassifier

    if len(set(targets)) == 1:
        model = DummyClassifier()
    with threadpool_limits(1):
        return model.fit(features, targets)


def check_tries(*, max_ngram: int, max_part: int, **tried: Sequence[float]) -> None:
    """Raises ValueError for n-grams shorter than 1, and for a setting in ``tried`` that has no
    values or a value that is not above 0."""
    for name, strengths in tried.items():
        if min(max_ngram, max_part) < 1 or not strengths or min(strengths) <= 0:
            raise ValueError(f"max_ngram and max_part must be at least 1 and every {name} above 0")


class LinearBaseline(Baseline):
    """A linear model over features of a row's texts. The features and the model with the best score
    on validation are chosen; ties go to the first."""

    def __init__(self, *, max_ngram: int, max_part: int, num_models: int) -> None:
        self.max_ngram, self.max_part = max_ngram, max_part
        self.num_tries = len(FEATURES) * num_models

    @abstractmethod
    def models(self, features: Any, train: Sequence[Row]) -> Iterator[Any]:
        """Yields models fitted to the ``features`` of ``train``."""

    @abstractmethod
    def answers(self, model: Any, features: Any, rows: Sequence[Row]) -> list[str]:
        """Returns the model's answer to each row."""

    def texts(self, rows: Sequence[Row]) -> list[str]:
        """Returns the texts that features are computed from; the two texts of a pair are joined."""
        return [" ".join(self.kind.texts(row)) for row in rows]

    def features(self, vectorizer: Any, rows: Sequence[Row]) -> Any:
        return vectorizer.transform(self.texts(rows))

    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        self.kind = score.kind
        best = -float("inf")
        for name in FEATURES:
            vectorizer = tfidf(name, max_ngram=self.max_ngram, max_part=self.max_part)
            vectorizer.fit(self.texts(train))
            held_out = self.features(vectorizer, validation)
            for model in self.models(self.features(vectorizer, train), train):
                value = score(validation, self.answers(model, held_out, validation))
                if value > best:
                    best, self.vectorizer, self.model = value, vectorizer, model

    def predict(self, rows: Sequence[Row]) -> list[str]:
        return self.answers(self.model, self.features(self.vectorizer, rows), rows)
