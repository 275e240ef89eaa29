"""The classes that a run or baseline confuses."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stages.evaluation.confusion import ConfusionRecord
from stages.findings.cells import Cell

MOST = 10  # classes in one table, so that it is readable
OTHERS = "(others)"


class Line(NamedTuple):
    """One class, and the shares of its rows (or words) that are predicted as each class."""

    name: str
    number: int  # of rows (or words) in one trial
    shares: list[float]  # one for each column


class Worst(NamedTuple):
    """The class that is found least often, and the class that it is most often taken for."""

    name: str
    found: float  # as a share
    taken_for: str
    mistaken: float  # as a share


@dataclass(frozen=True)
class Confusion:
    """The confusion table of a cell, over all of its trials."""

    cell: Cell
    num_classes: int
    columns: list[str]
    lines: list[Line]  # one for each column but OTHERS, in the same order
    worst: Worst | None  # None if every class is always found


def confusion(cell: Cell, records: Sequence[ConfusionRecord]) -> Confusion | None:
    """Returns the confusion table of a cell from the ``records`` of its task; None if the task has
    no classes."""
    place = cell.group, cell.method, cell.label_budget
    rows = [row for row in records if (row.run, row.method, row.label_budget) == place]
    if not rows:
        return None
    totals, right = Counter[str](), Counter[str]()
    for row in rows:
        totals[row.answer] += row.number
        right[row.answer] += row.number * (row.answer == row.prediction)
    by_errors = sorted(totals, key=lambda name: (right[name] - totals[name], name))
    shown = sorted(by_errors[:MOST])
    columns = [*shown, OTHERS] if {row.prediction for row in rows} - {*shown} else shown
    lines = []
    for name in shown:
        numbers = Counter[str]()
        for row in rows:
            if row.answer == name:
                numbers[row.prediction if row.prediction in shown else OTHERS] += row.number
        shares = [numbers[column] / totals[name] for column in columns]
        lines.append(Line(name, round(totals[name] / rows[0].num_trials), shares))
    least = min(sorted(totals), key=lambda name: right[name] / totals[name])
    mistakes = Counter[str]()
    for row in rows:
        if row.answer == least != row.prediction:
            mistakes[row.prediction] += row.number
    worst = None
    if mistakes:
        other, number = min(mistakes.items(), key=lambda item: (-item[1], item[0]))
        worst = Worst(least, right[least] / totals[least], other, number / totals[least])
    return Confusion(cell, len(totals), columns, lines, worst)
