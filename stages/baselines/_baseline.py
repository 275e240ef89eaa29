"""What a classical model offers: no pretraining, and nothing random but which rows are labelled."""

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


BASELINES = Components[Baseline]("baselines")
