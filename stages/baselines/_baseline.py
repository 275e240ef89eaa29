"""What a classical model offers: no pretraining, and nothing random but which rows are labelled."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from threadpoolctl import threadpool_limits

from stages.core.components import Components
from stages.evaluation.metrics import score
from stages.kinds._cells import Row
from stages.kinds._kind import Kind


@dataclass(frozen=True)
class Score:
    """The kind of a task's rows, and the metric that its trials are compared by."""

    kind: Kind
    metric: str

    def __call__(self, rows: Sequence[Row], predicted: Sequence[str]) -> float:
        """Of predictions for labelled ``rows``."""
        return score(self.metric, [self.kind.answer(row) for row in rows], predicted)


class Baseline(ABC):
    """A classical model. ``fits`` names the kinds of rows that it can be fitted to."""

    fits: ClassVar[tuple[str, ...]]
    num_tries: int = 1  # settings that validation chooses from

    @abstractmethod
    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        """Learn from ``train``; choose settings by ``score`` on ``validation`` alone."""

    @abstractmethod
    def predict(self, rows: Sequence[Row]) -> list[str]:
        """An answer for each row, written as ``Kind.answer`` does."""

    def probabilities(self, rows: Sequence[Row]) -> list[float | None]:
        """Those of the answers, where the model gives any."""
        return [None] * len(rows)


def logistic(features: Any, targets: Sequence[str] | Sequence[bool], C: float) -> Any:
    """A fitted logistic regression; a constant where the few labels are all the same.

    One thread: on vectors this short several wait for each other ten times longer than they work,
    and how many there are would show in the last digits.
    """
    # scikit-learn is imported where something is fitted: to check settings it takes two seconds.
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LogisticRegression

    one_class = len(set(targets)) == 1
    model = DummyClassifier() if one_class else LogisticRegression(C=C, max_iter=2000)
    with threadpool_limits(1):
        return model.fit(features, targets)


def check_tries(max_ngram: int, **tried: Sequence[float]) -> None:
    """Raises ValueError for n-grams of no words, and for a list of strengths, under its setting's
    name, that is empty or has one that is not above 0."""
    for name, strengths in tried.items():
        if max_ngram < 1 or not strengths or min(strengths) <= 0:
            raise ValueError(f"max_ngram must be at least 1 and every {name} above 0")


def tfidf_of_words(max_ngram: int) -> Any:
    """scikit-learn's TF-IDF over words, signs and their n-grams, not yet fitted."""
    # Imported here as in ``logistic``.
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(
        ngram_range=(1, max_ngram), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]"
    )


BASELINES = Components[Baseline]("baselines")
