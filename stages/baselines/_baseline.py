"""The contract of a baseline: a classical model without pretraining, in which nothing is random
except the draw of the labelled rows."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from stages.core.components import Components, Settings
from stages.evaluation.metrics import score
from stages.tasks._cells import Row
from stages.tasks._task import Task

Count = Annotated[int, Field(ge=1)]
Counts = Annotated[Sequence[Count], Field(min_length=1)]
Strengths = Annotated[Sequence[Annotated[float, Field(gt=0)]], Field(min_length=1)]


@dataclass(frozen=True)
class Score:
    """Scores predictions for a task's rows by the metric that compares the task's trials."""

    kind: Task
    metric: str
    labels: Sequence[str] = ()  # of all rows of train

    def __call__(self, rows: Sequence[Row], predicted: Sequence[str]) -> float:
        """Returns the score of predictions for labelled ``rows``."""
        return score(self.metric, [self.kind.answer(row) for row in rows], predicted)


class Baseline(ABC):
    """A classical model. ``fits`` names the kinds of rows that it can be fitted to.

    ``num_tries`` is the number of settings from which validation chooses; 0 for an external system,
    which learns from no row, so that its trials are equal and it cannot predict new text.
    """

    fits: ClassVar[tuple[str, ...]]
    num_tries: int = 1

    def files(self, tasks: Sequence[str]) -> dict[str, Path] | None:
        """Returns {task: the user's file that the baseline reads}, without tasks that have no file;
        None if the baseline needs no files. The file becomes the setting ``path`` of the task's
        plan. Raises ValueError, which begins with a setting's name, for a file of no task."""
        return None

    def check_file(self, file: Path, kind: Task) -> None:
        """Raises ValueError, as ``files`` does, if rows of ``kind`` cannot be read from a file."""
        raise NotImplementedError

    @abstractmethod
    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        """Learns from ``train``, and chooses settings by ``score`` on ``validation`` alone."""

    @abstractmethod
    def predict(self, rows: Sequence[Row]) -> list[str]:
        """Returns an answer for each row, in the form of ``Task.answer``."""

    def probabilities(self, rows: Sequence[Row]) -> list[float | None]:
        """Returns the probabilities of the answers; None if the model gives none."""
        return [None] * len(rows)


BASELINES = Components[Baseline]("baselines")


def kind_of_source(kind: Task, source: Settings) -> Task:
    """Returns ``kind``, set up to read cells as a task's source does (``Task.cell_settings``)."""
    settings = {key: source[key] for key in kind.cell_settings if key in source}
    return kind.for_rows(**settings) if settings else kind
