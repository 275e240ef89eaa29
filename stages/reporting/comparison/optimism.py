"""What choosing the best of several means adds to it: the winner's curse.

The best mean is chosen on the test scores that it is shown with, so part of its lead is chance. How
much is bounded: the error of the chosen mean is on average no larger than the largest of all errors
would be if they were independent and all runs equally good. Errors that rise and fall together, as
those on the same test rows do, have a smaller largest one (Sudakov-Fernique; Vershynin 2018,
theorem 7.2.11).
"""

from collections.abc import Sequence

import numpy as np
from scipy import special

from stages.evaluation.metrics import scale_of
from stages.reporting.comparison.cells import Cell
from stages.reporting.comparison.results import Results
from stages.reporting.number_format import metric_name

STEPS = 4000  # of the numerical integral; even, so that 0 lies between two of them
REACH = 9.0  # standard deviations, beyond which nothing is left
FAR = 6.0  # standard errors below the best
FEW = 4  # tasks that are named one by one


def largest_error(deviations: Sequence[float]) -> float:
    """The expectation of the largest of independent normal errors with these standard deviations,
    of which one at least is positive."""
    reach = REACH * max(deviations)
    x = np.linspace(-reach, reach, STEPS)
    below = np.ones_like(x)  # the probability that all errors are below x
    for deviation in deviations:
        below *= special.ndtr(x / deviation) if deviation else x > 0
    return float(((x > 0) - below).sum() * (x[1] - x[0]))


def bound(cells: Sequence[Cell]) -> float | None:
    """By how much the best of these means is too good on average, at most; None if nobody knows: a
    cell that may be the best has one trial. One far below the best is never chosen, and counts
    only if its error is known (the majority's answer has none, over seeds that agree)."""
    best = max(cells, key=lambda cell: cell.merit)
    errors = [_error(cell) for cell in cells]
    if (own := _error(best)) is None:
        return None
    if any(
        error is None and cell.merit > best.merit - FAR * own
        for cell, error in zip(cells, errors, strict=True)
    ):
        return None
    known = [error for error in errors if error is not None]
    return largest_error(known) if len(known) > 1 and any(known) else 0.0


def _error(cell: Cell) -> float | None:
    variance = cell.mean.variance
    return None if variance is None else variance.total**0.5


def sentence(results: Results, label_budget: str, methods: Sequence[str]) -> str:
    """Of the best of each task with these methods; the baselines are among the means. Names are in
    backticks. Of many tasks only the largest bound is told."""
    known: list[str] = []
    unknown: list[str] = []
    largest: dict[str, tuple[float, str]] = {}  # of each metric's unit
    for task, metric in results.metrics.items():
        cells = _tried(results, task, label_budget, methods)
        if len(cells) < 2:
            continue
        scale, much = scale_of(metric), bound(cells)
        if much is None:
            unknown.append(f"`{task}`")
            continue
        unit = scale.unit or metric_name(metric)
        size = f"at most {scale.shown(much)} {unit}"
        known.append(f"{size} on `{task}` (highest of {len(cells)} means)")
        largest[unit] = max(largest.get(unit, (0.0, size)), (much, size))
    if not known and not unknown:
        return ""
    num_tasks = len(known) + len(unknown)
    if num_tasks > FEW:
        known = [size for _, size in largest.values()]
    parts = ["Each best score is the highest of several on the same test rows, in part by luck."]
    if known:
        parts.append(f"On average that is {', '.join(known)}.")
    if unknown:
        on = f"{len(unknown)} of {num_tasks} tasks" if num_tasks > FEW else ", ".join(unknown)
        where = f" on {on}" if known else ""
        parts.append(f"How much{where} is unknown: what may be the best has one trial.")
    return " ".join(parts)


def _tried(
    results: Results, task: str, label_budget: str, methods: Sequence[str]
) -> Sequence[Cell]:
    runs = [cell for cell in results.run_cells(task, label_budget) if cell.method in methods]
    baselines = (results.cell(name, task, "", label_budget) for name in results.baselines)
    return [*runs, *filter(None, baselines)]
