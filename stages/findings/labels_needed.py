"""Labels needed: the number of labels from which a run stays ahead of the best classical baseline,
and the change of its score when the labels are doubled."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import product
from typing import NamedTuple

from stages.evaluation.metrics import merit
from stages.evaluation.moderation import Moderation
from stages.findings.answers import BestRun, with_baseline
from stages.findings.cells import Cell
from stages.findings.scores import Scores
from stages.findings.sizes import Estimate


class Reach(Enum):
    """Where a lead becomes positive and stays so, up to the largest label budget."""

    ALREADY = "already with the fewest labels"
    BETWEEN = "between two label budgets"
    NOT_REACHED = "not up to the most labels"
    LOST = "with fewer labels only"  # but not with the most


class Crossing(NamedTuple):
    """The number of labels from which a lead stays positive; ``num_labels`` is None if this is not
    between two label budgets."""

    reach: Reach
    num_labels: float | None = None


@dataclass(frozen=True, kw_only=True)
class Passing:
    """The number of labels from which a run stays ahead of the best classical baseline.

    ``low`` and ``high`` are the ends of the interval, None if a difference has none.
    """

    baselines: tuple[str, ...]  # the best of each label budget
    labels: Crossing
    low: Crossing | None
    high: Crossing | None
    basis: str  # what the interval covers
    has_external: bool = False  # whether one of the baselines is an external system


@dataclass(frozen=True, kw_only=True)
class LabelsNeeded:
    """The effect of more labels on a run with a method on a task."""

    run: str
    task: str
    method: str
    metric: str
    num_labels: tuple[int, ...]  # of the label budgets, ascending
    passing: Passing | None  # None unless at least two label budgets have a baseline
    # The change of the mean score per doubling of the labels, between the two largest numbers of
    # labels. A larger score is not better for every metric.
    gain_per_doubling: Estimate


def crossing(num_labels: Sequence[int], leads: Sequence[float]) -> Crossing:
    """Returns the number of labels from which a lead stays positive; a lead of 0 is not positive.

    Between two label budgets the lead is interpolated linearly in the logarithm of the number of
    labels. Nothing is extrapolated.
    """
    behind = [i for i, lead in enumerate(leads) if lead <= 0]
    if not behind:
        return Crossing(Reach.ALREADY)
    last = behind[-1]
    if last == len(leads) - 1:
        return Crossing(Reach.NOT_REACHED if len(behind) == len(leads) else Reach.LOST)
    part = -leads[last] / (leads[last + 1] - leads[last])
    few, many = num_labels[last], num_labels[last + 1]
    return Crossing(Reach.BETWEEN, few * (many / few) ** part)


def passing(places: Sequence[tuple[int, BestRun]]) -> Passing | None:
    """Returns the number of labels from which a run stays ahead of the best classical baseline,
    with its interval. ``places`` has the comparison with the baseline for each number of labels,
    ascending.

    The interval contains the numbers of labels at which the t interval of the difference includes 0
    (the inversion of a test; Fieller 1954). The ends of the t interval are interpolated like the
    mean, and the ends of this interval are where they cross 0. A bootstrap over seeds would have
    too narrow an interval: three seeds have only ten different resamples.

    - The interval contains the true number at least as often as the t intervals contain the true
      difference, if this difference is linear in the logarithm of the number of labels between two
      label budgets: interpolated t intervals are at least as wide as the t interval of the
      interpolated difference, however the differences at the two label budgets correlate.
    - With three seeds the t intervals are wide, and the ends are often outside the label budgets.
    - The baseline is chosen as the best of several on the same test rows, so on average its score
      is too good and the number of labels too large.
    """
    known = [(number, best) for number, best in places if best.strongest]
    if len(known) < 2:
        return None
    at = partial(crossing, [number for number, _ in known])
    metric = known[0][1].run.metric
    effects = [best.effect for _, best in known]
    ends = [
        sorted((merit(metric, effect.low), merit(metric, effect.high)))
        for effect in effects
        if effect.low is not None and effect.high is not None
    ]
    has_interval = len(ends) == len(effects)
    return Passing(
        baselines=tuple(dict.fromkeys(b.strongest.group for _, b in known if b.strongest)),
        labels=at([merit(metric, effect.value) for effect in effects]),
        low=at([high for _, high in ends]) if has_interval else None,
        high=at([low for low, _ in ends]) if has_interval else None,
        basis=effects[-1].basis,
        has_external=any(b.strongest.is_external for _, b in known if b.strongest),
    )


def labels_needed(
    scores: Scores, moderation: Moderation, num_labels: Mapping[str, Mapping[str, int]]
) -> dict[tuple[str, str, str], LabelsNeeded]:
    """Returns the effect of more labels by task, run and method. A run and method with trials at
    only one number of labels on a task is left out.

    ``num_labels`` has the number of labels of each label budget, by task.
    """
    by_place: dict[tuple[str, str, str], LabelsNeeded] = {}
    for task, group, method in product(scores.tasks, scores.groups, scores.methods):
        cells: dict[int, Cell] = {}
        for budget in scores.label_budgets:
            if cell := scores.cell(group.name, task, method, budget):
                cells.setdefault(num_labels[task][budget], cell)
        numbers = sorted(cells)
        if len(numbers) < 2:
            continue
        largest = cells[numbers[-1]]
        compared = [
            (n, with_baseline(cell, scores.baseline_cells(task, cell.label_budget), moderation))
            for n, cell in sorted(cells.items())
        ]
        *_, few, many = numbers
        more = moderation.difference(largest.key, cells[few].key)
        doublings = math.log2(many / few)
        low, high = (None if end is None else end / doublings for end in (more.low, more.high))
        by_place[task, group.name, method] = LabelsNeeded(
            run=group.name,
            task=task,
            method=method,
            metric=largest.metric,
            num_labels=tuple(numbers),
            passing=passing(compared),
            gain_per_doubling=Estimate(more.value / doublings, low, high),
        )
    return by_place
