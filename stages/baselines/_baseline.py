"""The contract of a baseline: a classical model without pretraining, in which nothing is random
except the draw of the labelled rows."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from stages.core.components import Components
from stages.evaluation.metrics import score
from stages.kinds._cells import Row
from stages.kinds._kind import Kind


@dataclass(frozen=True)
class Score:
    """Scores predictions for a task's rows by the metric that compares its trials."""

    kind: Kind
    metric: str

    def __call__(self, rows: Sequence[Row], predicted: Sequence[str]) -> float:
        """Returns the score of predictions for labelled ``rows``."""
        return score(self.metric, [self.kind.answer(row) for row in rows], predicted)


class Baseline(ABC):
    """A classical model. ``fits`` names the kinds of rows that it can be fitted to."""

    fits: ClassVar[tuple[str, ...]]
    num_tries: int = 1  # number of settings from which validation chooses

    @abstractmethod
    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        """Learns from ``train``, and chooses settings by ``score`` on ``validation`` alone."""

    @abstractmethod
    def predict(self, rows: Sequence[Row]) -> list[str]:
        """Returns an answer for each row, written as ``Kind.answer`` does."""

    def probabilities(self, rows: Sequence[Row]) -> list[float | None]:
        """Returns the probabilities of the answers; None if the model gives none."""
        return [None] * len(rows)


BASELINES = Components[Baseline]("baselines")
