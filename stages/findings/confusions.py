"""The classes that a run or baseline confuses."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stages.evaluation.confusion import ConfusionRecord
from stages.findings.cells import Cell

MOST = 10  # classes in one table, so that it is readable
OTHERS = "(others)"


@dataclass(frozen=True)
class Line:
    """One class, and the shares of its rows (or words) that are predicted as each class."""

    name: str
    number: int  # of rows (or words) in one trial
    shares: list[float]  # one for each column


@dataclass(frozen=True)
class Worst:
    """The class that is found least often, and the class that it is most often taken for."""

    name: str
    found: float  # as a share
    taken_for: str
    mistaken: float  # as a share


@dataclass(frozen=True)
class Confusion:
    """The confusion of a cell's trials."""

    cell: Cell
    num_classes: int  # with errors
    columns: list[str]
    lines: list[Line]  # one for each column but OTHERS, in the same order
    worst: Worst | None  # None if every class is always found


def confusion(cell: Cell, records: Sequence[ConfusionRecord]) -> Confusion | None:
    """Returns the confusion of a cell, given the ``records`` of its task; None if the task has no
    classes."""
    place = cell.group, cell.method, cell.label_budget
    rows = [row for row in records if (row.run, row.method, row.label_budget) == place]
    if not rows:
        return None
    wrong = Counter[str]()
    for row in rows:
        wrong[row.answer] += row.number * (row.answer != row.prediction)
    shown = sorted(sorted(wrong), key=lambda name: -wrong[name])[:MOST]
    shown.sort()
    columns = [*shown, OTHERS] if {row.prediction for row in rows} - {*shown} else shown
    lines = [_line(name, columns, rows) for name in shown]
    return Confusion(cell, len(wrong), columns, lines, _worst(rows))


def _line(name: str, columns: Sequence[str], rows: Sequence[ConfusionRecord]) -> Line:
    of_class = [row for row in rows if row.answer == name]
    total = sum(row.number for row in of_class)
    numbers: Counter[str] = Counter()
    for row in of_class:
        numbers[row.prediction if row.prediction in columns else OTHERS] += row.number
    number = round(total / rows[0].num_trials)
    return Line(name, number, [numbers[column] / total for column in columns])


def _worst(rows: Sequence[ConfusionRecord]) -> Worst | None:
    totals, right = Counter[str](), Counter[str]()
    for row in rows:
        totals[row.answer] += row.number
        right[row.answer] += row.number * (row.answer == row.prediction)
    worst = min(sorted(totals), key=lambda name: right[name] / totals[name])
    others: Counter[str] = Counter()
    for row in rows:
        if row.answer == worst and row.prediction != worst:
            others[row.prediction] += row.number
    if not others:
        return None
    most, number = min(others.items(), key=lambda item: (-item[1], item[0]))
    return Worst(worst, right[worst] / totals[worst], most, number / totals[worst])
