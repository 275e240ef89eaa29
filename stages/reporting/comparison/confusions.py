"""Which classes the best run of a task, and the best classical baseline, take for which."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stages.evaluation.confusion import ConfusionRecord
from stages.reporting.comparison.best_runs import BestRun, best_runs
from stages.reporting.comparison.cells import Cell
from stages.reporting.comparison.results import Results
from stages.reporting.number_format import percent

MOST = 10  # classes in one table, which one can read
OTHERS = "(others)"
LEVELS = (0.005, 0.1, 0.3, 0.6)  # shares of a row, from which it is shaded more


@dataclass(frozen=True)
class Line:
    """One class: of its rows (or words) in one trial, the shares that are predicted as what."""

    name: str
    number: int
    shares: list[float]  # of each column

    @property
    def shades(self) -> list[int]:
        """How dark each share is: 0 is not at all."""
        return [sum(share >= level for level in LEVELS) for share in self.shares]


@dataclass(frozen=True)
class Confusion:
    """Of one run or baseline, over all its trials with the most labels."""

    task: str
    finding: str
    columns: list[str]
    lines: list[Line]  # the first of the columns, in the same order


def confusions(results: Results) -> list[Confusion]:
    """Of each task with classes: its best run, then the best classical baseline."""
    best = best_runs(results)
    return [
        found
        for task in results.params.tasks
        for cell in _shown(best[task, results.label_budgets[-1]])
        if (found := _confusion(results, cell))
    ]


def _shown(best: BestRun) -> Iterator[Cell]:
    yield best.run
    if best.strongest is not None:
        yield best.strongest


def _confusion(results: Results, cell: Cell) -> Confusion | None:
    runs = {trial.run for trial in cell.trials}
    rows = [
        row
        for row in results.confusion[cell.task]
        if row.run in runs and (row.method, row.label_budget) == (cell.method, cell.label_budget)
    ]
    if not rows:
        return None
    wrong = Counter[str]()
    for row in rows:
        wrong[row.answer] += row.number * (row.answer != row.prediction)
    shown = sorted(sorted(wrong), key=lambda name: -wrong[name])[:MOST]
    shown.sort()
    columns = [*shown, OTHERS] if {row.prediction for row in rows} - {*shown} else shown
    lines = [_line(name, columns, rows) for name in shown]
    named = f"`{cell.group}`"
    named += "" if cell.group in results.baselines else f" with `{cell.method}`"
    few = f"; the {MOST} of {len(wrong)} classes with the most errors" * (len(wrong) > MOST)
    return Confusion(cell.task, f"{named}: {_finding(rows)}{few}", columns, lines)


def _line(name: str, columns: Sequence[str], rows: Sequence[ConfusionRecord]) -> Line:
    of_class = [row for row in rows if row.answer == name]
    total = sum(row.number for row in of_class)
    found: Counter[str] = Counter()
    for row in of_class:
        found[row.prediction if row.prediction in columns else OTHERS] += row.number
    trials = sum({row.run: row.num_trials for row in rows}.values())
    return Line(name, round(total / trials), [found[column] / total for column in columns])


def _finding(rows: Sequence[ConfusionRecord]) -> str:
    """The class that is found least often, and what it is taken for."""
    totals, right = Counter[str](), Counter[str]()
    for row in rows:
        totals[row.answer] += row.number
        right[row.answer] += row.number * (row.answer == row.prediction)
    worst = min(sorted(totals), key=lambda name: right[name] / totals[name])
    taken = [row for row in rows if row.answer == worst and row.prediction != worst]
    if not taken:
        return "every class is always found"
    others: Counter[str] = Counter()
    for row in taken:
        others[row.prediction] += row.number
    most, number = min(others.items(), key=lambda item: (-item[1], item[0]))
    found, mistaken = (percent(round(n / totals[worst], 2)) for n in (right[worst], number))
    return (
        f"`{worst}` is found least often ({found}) and most often taken for `{most}` ({mistaken})"
    )
