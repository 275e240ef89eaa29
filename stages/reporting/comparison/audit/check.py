"""A question of the audit and its answer."""

from dataclasses import dataclass
from typing import Literal

from stages.reporting.comparison.cells import Cell

AT_EDGE = 0.2  # of the trials: the share that may keep a value at an edge of those tried
MAJORITY = 0.5
Mark = Literal["objection", "none", "does not apply"]


@dataclass(frozen=True)
class Check:
    """What a sceptical reviewer would ask of a study, answered with a figure."""

    question: str
    answer: str
    objection: bool | None  # None: the study has nothing to ask this of
    details: tuple[str, ...] = ()  # the runs, tasks or cells that it is about

    @property
    def mark(self) -> Mark:
        if self.objection is None:
            return "does not apply"
        return "objection" if self.objection else "none"


def place(cell: Cell) -> str:
    """A cell in words."""
    return f"{cell.group} on {cell.task}, {cell.method}, {cell.label_budget} labels"


def span(numbers: list[int]) -> str:
    """``3``, or ``1 to 3``."""
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
