"""Ties: which runs and baselines no verdict tells apart from the best run of a task."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stages.reporting.comparison.best_runs import BestRun
from stages.reporting.comparison.cells import Cell
from stages.reporting.comparison.results import Results

BEST, TIED, UNTESTED, APART = "the best run", "not told apart", "not tested", "told apart"
NO_CONTRAST = "no contrast: they differ in more than one thing"
NOT_THE_STRONGEST = "no contrast: another baseline is stronger"


@dataclass(frozen=True)
class Beside:
    """A run or baseline, by its best method, beside the best run."""

    name: str
    kind: str  # BEST, TIED (tested, but not significant after Holm correction), UNTESTED or APART
    verdict: str


def beside_best(results: Results, found: BestRun) -> list[Beside]:
    """Of each run and baseline with trials there, the best mean first. Their verdicts are those of
    the contrasts and of ``best_runs``."""
    return [_beside(results, found, cell) for cell in best_of_each(results, found.run)]


def best_of_each(results: Results, beside: Cell) -> list[Cell]:
    """The best cell of each run and baseline with the task and label budget of a cell, sorted."""
    cells = [
        max(found, key=lambda cell: cell.merit)
        for name in results.names
        if (
            found := [
                cell
                for method in results.methods
                if (cell := results.cell(name, beside.task, method, beside.label_budget))
            ]
        )
    ]
    return sorted(cells, key=lambda cell: -cell.merit)


def _beside(results: Results, found: BestRun, cell: Cell) -> Beside:
    if cell.group == found.run.group:
        return Beside(cell.group, BEST, BEST)
    if cell is found.strongest:
        tested = found.effect.variance is not None and not found.run.has_one_pretraining_seed
        return Beside(cell.group, _kind(tested, found.significant), found.verdict)
    for contrast in results.contrasts_of.get(cell, []):
        if found.run in (contrast.a, contrast.b):
            kind = _kind(contrast.is_tested, contrast.significant)
            return Beside(cell.group, kind, contrast.verdict)
    is_baseline = cell.group in results.baselines
    return Beside(cell.group, UNTESTED, NOT_THE_STRONGEST if is_baseline else NO_CONTRAST)


def _kind(tested: bool, significant: bool) -> str:
    return UNTESTED if not tested else APART if significant else TIED


def sentence(found: Sequence[Beside]) -> str:
    """How many there are of each kind; the best run's name is in backticks."""
    best = next(each.name for each in found if each.kind == BEST)
    counts = Counter(each.kind for each in found if each.kind != BEST)
    if not counts:
        return f"Nothing else was tried beside `{best}`."
    texts = {TIED: "not told apart from", APART: "told apart from", UNTESTED: "not tested against"}
    parts = [f"{counts[kind]} {text}" for kind, text in texts.items() if counts[kind]]
    first = f"{parts[0]} the best run, `{best}`"
    return f"Of {counts.total()} others, {'; '.join([first, *(f'{p} it' for p in parts[1:])])}."
