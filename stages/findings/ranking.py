"""Ranks of all runs and baselines, with intervals.

The interval of a run's rank follows from its comparisons with all others: the significantly better
ones rank above it, the significantly worse ones below it, and the rest above or below it (Mogstad
et al. 2024, section 3). Each run's comparisons are corrected for their number (Holm), so that the
interval contains the true rank at least as often as the study's confidence says.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from stages.evaluation.metrics import merit
from stages.evaluation.moderation import Moderation
from stages.evaluation.statistics import Interval, holm
from stages.findings.cells import Cell
from stages.findings.questions import unit_of
from stages.findings.scores import Scores

ALL_TASKS = "all tasks"
MOST = 40  # entries of a ranking, those with the best means


@dataclass(frozen=True)
class Ranked:
    """A run's or baseline's place in a ranking: 1 is best. Its true rank lies between
    ``lowest_rank`` and ``highest_rank``, which are None if no difference to another run has an
    interval."""

    scope: str  # a task, or ALL_TASKS for the mean over tasks
    method: str
    label_budget: str
    run: str
    mean: float
    metric: str
    rank: int
    lowest_rank: int | None
    highest_rank: int | None


def rankings(scores: Scores, moderation: Moderation) -> list[Ranked]:
    """Returns, for each label budget and method, the places on each task and then on the mean over
    tasks, the best first."""
    places: list[Ranked] = []
    for budget, method in product(reversed(scores.label_budgets), scores.methods):
        members: dict[str, dict[str, list[Cell]]] = {}  # by scope and name
        for task in scores.tasks:
            cells = {name: scores.cell(name, task, method, budget) for name in scores.names}
            members[task] = {name: [cell] for name, cell in cells.items() if cell}
        members[ALL_TASKS] = _on_all_tasks(scores, members)
        for scope, of_scope in members.items():
            if len(of_scope) > 1:
                places += _ranked((scope, method, budget), of_scope, moderation)
    return places


def _on_all_tasks(
    scores: Scores, by_task: Mapping[str, Mapping[str, list[Cell]]]
) -> dict[str, list[Cell]]:
    """Returns the cells of the runs and baselines that have a cell on every task, by name. Returns
    no cells if there is one task, or if the tasks' scores differ in unit."""
    units = {unit_of(metric) for metric in scores.metrics.values()}
    if len(by_task) < 2 or len(units) > 1:
        return {}
    names = [name for name in scores.names if all(name in cells for cells in by_task.values())]
    return {name: [cell for cells in by_task.values() for cell in cells[name]] for name in names}


def _ranked(
    ranking: tuple[str, str, str], members: Mapping[str, Sequence[Cell]], moderation: Moderation
) -> Iterator[Ranked]:
    """Yields the places in a ranking (scope, method and label budget), the best first. Equal means
    share a rank."""
    means = {
        name: sum(cell.mean.value for cell in cells) / len(cells) for name, cells in members.items()
    }
    metric = next(iter(members.values()))[0].metric
    order = sorted(members, key=lambda name: -merit(metric, means[name]))[:MOST]
    merits = {name: merit(metric, means[name]) for name in order}
    effects = {
        (a, b): _difference(members[a], members[b], moderation) for a, b in combinations(order, 2)
    }
    for name in order:
        signed = [
            (effect, 1 if name == a else -1) for (a, b), effect in effects.items() if name in (a, b)
        ]
        rank = 1 + sum(merits[other] > merits[name] for other in order)
        bounds = _bounds(metric, signed, confidence=moderation.confidence)
        yield Ranked(*ranking, name, means[name], metric, rank, *bounds)


def _difference(one: Sequence[Cell], other: Sequence[Cell], moderation: Moderation) -> Interval:
    pairs = [(a.key, b.key) for a, b in zip(one, other, strict=True)]
    if len(pairs) == 1:
        return moderation.difference(*pairs[0])
    return moderation.mean_difference(pairs)


def _bounds(
    metric: str, effects: Sequence[tuple[Interval, int]], *, confidence: float
) -> tuple[int | None, int | None]:
    """Returns the best and the worst possible rank of a run, from its differences to all others.
    Each difference has a sign: 1 for this run minus the other, -1 for the reverse. A difference
    without an interval excludes neither order."""
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
