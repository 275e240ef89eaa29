"""How small results carry over: the share of pairs of runs whose order in a smaller experiment is
their order in a larger one.

This is the decision accuracy of DataDecide (Magnusson et al. 2025): the order in the larger
experiment is that of means over seeds, and the order in the smaller one that of a single seed. The
share is the mean over these seeds. Two things differ here:

- The means leave out the seed whose order is judged. With that seed on both sides, in simulations
  of 4 to 7 equally good runs with 3 to 5 seeds, 57 to 60 % of pairs kept their order instead of 50.
- A pair that ties in the larger experiment has no order to predict and does not count. A pair that
  ties in the smaller one counts half, because a coin would be right half of the time.

The interval is Student's t over seeds. In these simulations it held the expected share in 90 to
100 % of studies, at a confidence of 95 %. The mean over tasks has an interval over tasks instead,
because it is about further tasks. Where all seeds (or tasks) agree there is no interval.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Literal

import numpy as np
from jaxtyping import Float

from stages.core.keys import RunKey
from stages.evaluation.metrics import merit
from stages.evaluation.statistics import over_seeds
from stages.findings.cells import Cell, by_shared_seeds
from stages.findings.contrasts import Contrast
from stages.findings.groups import Group
from stages.findings.pretraining_progress import Progress, comparable, validation_losses
from stages.findings.ranking import ALL_TASKS
from stages.findings.scores import Scores

Growth = Literal["label budget", "size", "share of pretraining steps"]
Experiment = Float[np.ndarray, "runs seeds"]  # scores, larger is better


@dataclass(frozen=True, kw_only=True)
class CarryOver:
    """The share of pairs of runs with equal orders in a smaller and a larger experiment."""

    growth: Growth  # what is smaller and larger
    smaller: str
    larger: str
    task: str  # ALL_TASKS: the mean over tasks; "" for the validation loss of pretraining
    method: str
    label_budget: str  # "" where this is what grows, and for pretraining
    runs: tuple[str, ...]  # as the larger experiment names them
    num_pairs: int  # with an order in the larger experiment
    share: float | None  # None without such a pair
    low: float | None
    high: float | None
    over: Literal["seeds", "tasks"]  # of which the share is the mean
    num_units: int  # seeds or tasks with a share


def kept_orders(smaller: Experiment, larger: Experiment) -> tuple[int, list[float]]:
    """Returns the number of pairs of runs that have an order in the larger experiment, and for each
    seed the share of these pairs whose order with this seed in the smaller experiment is that of
    the means over the other seeds in the larger one.

    A single seed is compared with itself, so its share is about these checkpoints and labels alone.
    """
    num_runs, num_seeds = smaller.shape
    others = larger if num_seeds == 1 else larger.sum(axis=1, keepdims=True) - larger
    a, b = np.triu_indices(num_runs, k=1)
    before, after = (np.sign(table[a] - table[b]) for table in (smaller, others))
    agree = np.where(before == 0, 0.5, before == after)
    decided = after != 0
    shares = [
        float(agree[decided[:, seed], seed].mean())
        for seed in range(num_seeds)
        if decided[:, seed].any()
    ]
    return int(decided.any(axis=1).sum()), shares


def carry_over(
    scores: Scores, contrasts: Sequence[Contrast], progress: Mapping[RunKey, Progress]
) -> list[CarryOver]:
    """Returns the shares for all pairs of label budgets, all pairs of sizes along the axis "size",
    and every validation of pretraining but the last, compared with the last.

    Validations are compared by their share of a run's steps, because the learning rate depends on
    that share; losses, only where they are comparable.
    """
    confidence = scores.confidence
    rows = [
        *_label_budgets(scores, confidence),
        *_sizes(contrasts, confidence),
    ]
    by_place: dict[tuple[str, ...], list[CarryOver]] = defaultdict(list)
    for row in rows:
        place = row.growth, row.smaller, row.larger, row.method, row.label_budget
        by_place[place].append(row)
    means = [_over_tasks(of_place, confidence) for of_place in by_place.values()]
    return [*rows, *filter(None, means), *_pretraining(scores.groups, progress, confidence)]


def _label_budgets(scores: Scores, confidence: float) -> list[CarryOver]:
    rows = []
    for task, method in product(scores.tasks, scores.methods):
        for smaller, larger in combinations(scores.label_budgets, 2):
            pairs = [
                (few, many)
                for group in scores.groups
                if (few := scores.cell(group.name, task, method, smaller))
                and (many := scores.cell(group.name, task, method, larger))
            ]
            if pairs:
                levels = smaller, larger
                rows.append(_of_cells("label budget", levels, pairs, "", confidence))
    return rows


def _sizes(contrasts: Sequence[Contrast], confidence: float) -> list[CarryOver]:
    """A run is compared at two sizes if the study has a contrast between them."""
    by_place: dict[tuple[str, ...], list[tuple[Cell, Cell]]] = defaultdict(list)
    for contrast in contrasts:
        if contrast.axis == "size":
            levels = contrast.level_b, contrast.level_a
            place = *levels, contrast.task, contrast.method, contrast.label_budget
            used = {cell.group for pair in by_place[place] for cell in pair}
            if not used & {contrast.a.group, contrast.b.group}:
                by_place[place].append((contrast.b, contrast.a))
    return [
        _of_cells("size", (place[0], place[1]), pairs, place[4], confidence)
        for place, pairs in by_place.items()
    ]


def _of_cells(
    growth: Growth,
    levels: tuple[str, str],
    pairs: Sequence[tuple[Cell, Cell]],
    label_budget: str,
    confidence: float,
) -> CarryOver:
    """``pairs`` has the cell of each run in the smaller and in the larger experiment."""
    first = pairs[0][1]
    table = by_shared_seeds([cell for pair in pairs for cell in pair])
    merits = table * merit(first.metric, 1.0)
    num_pairs, shares = kept_orders(merits[0::2], merits[1::2])
    return _row(
        growth,
        levels,
        shares,
        confidence,
        task=first.task,
        method=first.method,
        label_budget=label_budget,
        runs=tuple(larger.group for _, larger in pairs),
        num_pairs=num_pairs,
    )


def _over_tasks(rows: Sequence[CarryOver], confidence: float) -> CarryOver | None:
    """Returns the mean over tasks, or None if fewer than two tasks have a share."""
    known = [row for row in rows if row.share is not None]
    if len(known) < 2:
        return None
    first = known[0]
    return _row(
        first.growth,
        (first.smaller, first.larger),
        [row.share for row in known if row.share is not None],
        confidence,
        task=ALL_TASKS,
        method=first.method,
        label_budget=first.label_budget,
        runs=tuple(dict.fromkeys(run for row in known for run in row.runs)),
        num_pairs=sum(row.num_pairs for row in known),
    )


def _pretraining(
    all_groups: Sequence[Group], progress: Mapping[RunKey, Progress], confidence: float
) -> list[CarryOver]:
    """Runs with equal numbers of validations, whose losses can be compared, for the seeds that all
    of them have."""
    rows = []
    for members in comparable(all_groups, progress):
        by_number: dict[int, list[Group]] = defaultdict(list)
        for group in members:
            by_number[group.entry.training.num_validations].append(group)
        for number, some in by_number.items():
            seeds = sorted(set.intersection(*(set(group.seeds) for group in some)))
            if len(some) < 2 or not seeds:
                continue
            losses = np.array(
                [
                    [validation_losses(progress[RunKey(group.name, seed)]) for seed in seeds]
                    for group in some
                ]
            )
            for step in range(number - 1):
                num_pairs, shares = kept_orders(-losses[:, :, step], -losses[:, :, -1])
                rows.append(
                    _row(
                        "share of pretraining steps",
                        (f"{(step + 1) / number:.3g}", "1"),
                        shares,
                        confidence,
                        runs=tuple(group.name for group in some),
                        num_pairs=num_pairs,
                    )
                )
    return rows


def _row(
    growth: Growth,
    levels: tuple[str, str],
    shares: Sequence[float],
    confidence: float,
    *,
    runs: tuple[str, ...],
    num_pairs: int,
    task: str = "",
    method: str = "",
    label_budget: str = "",
) -> CarryOver:
    ends = over_seeds(shares, confidence=confidence) if len(shares) > 1 else None
    low, high = ends or (None, None)
    return CarryOver(
        growth=growth,
        smaller=levels[0],
        larger=levels[1],
        task=task,
        method=method,
        label_budget=label_budget,
        runs=runs,
        num_pairs=num_pairs,
        share=float(np.mean(shares)) if shares else None,
        low=low,
        high=high,
        over="tasks" if task == ALL_TASKS else "seeds",
        num_units=len(shares),
    )
