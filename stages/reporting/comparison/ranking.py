"""Ranks of all runs and baselines, with intervals.

The interval of a rank follows from the comparisons with all others: a run has at least as many
above it as are significantly better, and at most as many as are not significantly worse (Mogstad et
al. 2024, section 3). Each run's comparisons are corrected for their number (Holm), so that its
interval holds its true rank as often as the study's confidence says.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product

from stages.core.artifacts import Json
from stages.evaluation.metrics import merit
from stages.evaluation.statistics import Interval, holm
from stages.reporting.comparison.cells import Cell
from stages.reporting.comparison.questions import unit_of
from stages.reporting.comparison.results import Results
from stages.reporting.number_format import DASH, percent, six_decimals
from stages.reporting.score_format import shown

ALL_TASKS = "all tasks"
MOST = 40  # runs of a ranking, those with the best means
COLUMNS = ["scope", "method", "label_budget", "run", "mean", "rank", "lowest_rank", "highest_rank"]


@dataclass(frozen=True)
class Ranked:
    """A run's place in a ranking: 1 is best. Its true rank lies between ``best`` and ``worst``, of
    which nothing is known without an interval of each difference (None)."""

    name: str
    mean: float
    metric: str
    rank: int
    best: int | None
    worst: int | None

    @property
    def shown(self) -> str:
        """``2 (1 to 4)``"""
        return f"{self.rank} ({self.best} to {self.worst})" if self.best else f"{self.rank}"


@dataclass(frozen=True)
class Ranking:
    """All runs and baselines on one task, or on the mean over ALL_TASKS."""

    scope: str
    method: str
    label_budget: str
    ranked: list[Ranked]


@lru_cache(maxsize=1)
def rankings(results: Results) -> list[Ranking]:
    """A ranking of each task, then of the mean over tasks, with each method and label budget."""
    found = []
    for budget, method in product(reversed(results.label_budgets), results.methods):
        by_task = {task: _cells(results, task, method, budget) for task in results.params.tasks}
        for task, cells in by_task.items():
            if len(cells) > 1:
                members = {name: [cell] for name, cell in cells.items()}
                found.append(Ranking(task, method, budget, _ranked(results, members)))
        if members := _on_all_tasks(results, by_task):
            found.append(Ranking(ALL_TASKS, method, budget, _ranked(results, members)))
    return found


def _cells(results: Results, task: str, method: str, budget: str) -> dict[str, Cell]:
    found = {name: results.cell(name, task, method, budget) for name in results.names}
    return {name: cell for name, cell in found.items() if cell is not None}


def _on_all_tasks(
    results: Results, by_task: Mapping[str, Mapping[str, Cell]]
) -> dict[str, list[Cell]]:
    """The cells of those that have one on every task, if scores on all tasks have one unit."""
    units = {unit_of(metric) for metric in results.metrics.values()}
    if len(by_task) < 2 or len(units) > 1:
        return {}
    names = [name for name in results.names if all(name in cells for cells in by_task.values())]
    found = {name: [cells[name] for cells in by_task.values()] for name in names}
    return found if len(found) > 1 else {}


def _ranked(results: Results, members: Mapping[str, Sequence[Cell]]) -> list[Ranked]:
    """The best first; equal means share a rank."""
    means = {name: _mean(cells) for name, cells in members.items()}
    metric = next(iter(members.values()))[0].metric
    order = sorted(members, key=lambda name: -merit(metric, means[name]))[:MOST]
    merits = {name: merit(metric, means[name]) for name in order}
    effects = {
        (a, b): _difference(results, members[a], members[b]) for a, b in combinations(order, 2)
    }
    found = []
    for name in order:
        signed = [
            (effect, 1 if name == a else -1) for (a, b), effect in effects.items() if name in (a, b)
        ]
        rank = 1 + sum(merits[other] > merits[name] for other in order)
        bounds = _bounds(metric, signed, confidence=results.confidence)
        found.append(Ranked(name, means[name], metric, rank, *bounds))
    return found


def _mean(cells: Sequence[Cell]) -> float:
    return sum(cell.mean.value for cell in cells) / len(cells)


def _difference(results: Results, one: Sequence[Cell], other: Sequence[Cell]) -> Interval:
    pairs = [(a.key, b.key) for a, b in zip(one, other, strict=True)]
    if len(pairs) == 1:
        return results.moderation.difference(*pairs[0])
    return results.moderation.mean_difference(pairs)


def _bounds(
    metric: str, effects: Sequence[tuple[Interval, int]], *, confidence: float
) -> tuple[int | None, int | None]:
    """The lowest and the highest rank, from the differences to all others, each with the sign that
    makes it of this run; one without an interval decides nothing."""
    if all(effect.variance is None for effect, _ in effects):
        return None, None
    p_values = [1.0 if effect.p_value is None else effect.p_value for effect, _ in effects]
    clear = [
        sign * merit(metric, effect.value)
        for (effect, sign), p in zip(effects, holm(p_values), strict=True)
        if p < 1 - confidence
    ]
    ahead = sum(value < 0 for value in clear)  # others that are better
    behind = sum(value > 0 for value in clear)
    return 1 + ahead, 1 + len(effects) - behind


def note(results: Results) -> str:
    """How to read ``tables``."""
    return (
        f"1 is the best mean; in brackets the {percent(results.confidence)} interval of the rank: "
        "from one more than the number of runs and baselines that are significantly better to the "
        "number that are not significantly worse (Holm correction for the comparisons of each run)."
    )


def rows(results: Results) -> Iterator[Json]:
    """The rows of reports/ranks.csv."""
    for ranking in rankings(results):
        for each in ranking.ranked:
            yield {
                "scope": ranking.scope,
                "method": ranking.method,
                "label_budget": ranking.label_budget,
                "run": each.name,
                "mean": six_decimals(each.mean),
                "rank": each.rank,
                "lowest_rank": each.best,
                "highest_rank": each.worst,
            }


def tables(results: Results) -> list[tuple[str, list[dict[str, str]]]]:
    """A table for each method and label budget: runs in the order of the last ranking that has
    them, their mean there, and a column for each ranking."""
    found: dict[tuple[str, str], list[Ranking]] = {}
    for ranking in rankings(results):
        found.setdefault((ranking.method, ranking.label_budget), []).append(ranking)
    return [
        (f"{method}, {budget} labels", _table(members))
        for (method, budget), members in found.items()
    ]


def _table(members: Sequence[Ranking]) -> list[dict[str, str]]:
    by_scope = {ranking.scope: {each.name: each for each in ranking.ranked} for ranking in members}
    last = by_scope[members[-1].scope]
    names = dict.fromkeys([*last, *(name for ranks in by_scope.values() for name in ranks)])
    table = []
    for name in names:
        row = {"run": name}
        if members[-1].scope == ALL_TASKS:
            row["mean"] = shown(last[name].mean, last[name].metric) if name in last else DASH
        row |= {scope: r[name].shown if name in r else DASH for scope, r in by_scope.items()}
        table.append(row)
    return table
