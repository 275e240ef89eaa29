"""The classes that a model or baseline confuses."""

from collections import Counter
from collections.abc import Sequence

from stages.evaluation.confusion import ConfusionRecord
from stages.findings.cells import Cell
from stages.findings.facts import Confusion

MAX_ERRORS = 3


def worst_errors(cell: Cell, records: Sequence[ConfusionRecord]) -> tuple[Confusion, ...]:
    """Returns the commonest errors of a cell by their number of rows (or words), from the
    ``records`` of its task; empty if the task has no classes."""
    place = cell.group, cell.method, cell.label_budget
    rows = [row for row in records if (row.run, row.method, row.label_budget) == place]
    totals: Counter[str] = Counter()
    for row in rows:
        totals[row.answer] += row.number
    errors = [row for row in rows if row.answer != row.prediction and row.number]
    errors.sort(key=lambda row: (-row.number, row.answer, row.prediction))
    return tuple(
        Confusion(
            task=cell.task,
            answer=row.answer,
            prediction=row.prediction,
            share=row.number / totals[row.answer],
        )
        for row in errors[:MAX_ERRORS]
    )
