"""Ranks of all models and baselines on a task, with intervals.

The interval of a rank follows from the comparisons with all others: the significantly better ones
rank above it, the significantly worse ones below it, and the rest above or below it (Mogstad et al.
2024, section 3). The comparisons of each are corrected for their number (Holm), so that the
interval contains the true rank at least as often as the study's confidence says.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from stages.evaluation.metrics import merit
from stages.evaluation.moderation import Moderation
from stages.evaluation.statistics import Interval, holm
from stages.findings.cells import Cell, Scores

MOST = 40  # entries of a ranking, those with the best means


@dataclass(frozen=True)
class Ranked:
    """A place in a ranking: 1 is best. The true rank lies between ``lowest_rank`` and
    ``highest_rank``, which are None if no difference to another has an interval."""

    task: str
    method: str
    label_budget: str
    model: str  # or baseline
    rank: int  # equal means share one
    lowest_rank: int | None
    highest_rank: int | None


def rankings(scores: Scores, moderation: Moderation) -> list[Ranked]:
    """Returns the places for each label budget, method and task, the best first."""
    places: list[Ranked] = []
    for budget, method, task in product(scores.label_budgets, scores.methods, scores.tasks):
        cells = [scores.cell(name, task, method, budget) for name in scores.names]
        known = [cell for cell in cells if cell]
        if len(known) > 1:
            places += _ranked((task, method, budget), known, moderation)
    return places


def _ranked(
    ranking: tuple[str, str, str], cells: Sequence[Cell], moderation: Moderation
) -> Iterator[Ranked]:
    order = sorted(cells, key=lambda cell: -cell.merit)[:MOST]
    effects = {(a, b): moderation.difference(a.key, b.key) for a, b in combinations(order, 2)}
    for cell in order:
        signed = [
            (effect, 1 if cell is a else -1) for (a, b), effect in effects.items() if cell in (a, b)
        ]
        rank = 1 + sum(other.merit > cell.merit for other in order)
        bounds = _bounds(cell.metric, signed, confidence=moderation.confidence)
        yield Ranked(*ranking, cell.group, rank, *bounds)


def _bounds(
    metric: str, effects: Sequence[tuple[Interval, int]], *, confidence: float
) -> tuple[int | None, int | None]:
    """Returns the best and the worst possible rank of a cell, from its differences to all others.
    Each difference has a sign: 1 for this cell minus the other, -1 for the reverse. A difference
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
