"""Ranks of runs and baselines on a task with a label budget, each with its best method."""

from collections.abc import Sequence

from stages.evaluation.records import CLASSICAL
from stages.reporting.comparison.cells import Cell
from stages.reporting.comparison.results import Results


def ranked_cells(results: Results, task: str, label_budget: str) -> list[tuple[Cell, int]]:
    """The best cell of each run and baseline, with its rank, in the order of params.yaml."""
    cells = [cell for name in results.names if (cell := _best(results, name, task, label_budget))]
    return list(zip(cells, ranks([cell.merit for cell in cells]), strict=True))


def ranks(merits: Sequence[float]) -> list[int]:
    """1 is the largest. Ties share the best of their ranks, and the next rank counts them all."""
    rounded = [round(merit, 6) for merit in merits]  # as in the CSV files
    return [1 + sum(other > merit for other in rounded) for merit in rounded]


def _best(results: Results, name: str, task: str, label_budget: str) -> Cell | None:
    methods = [CLASSICAL] if name in results.baselines else results.methods
    cells = [results.cell(name, task, method, label_budget) for method in methods]
    return max(filter(None, cells), key=lambda cell: cell.merit, default=None)
