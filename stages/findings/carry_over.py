"""How results carry over from smaller to larger experiments: the share of pairs of runs that have
the same order in both.

This is the decision accuracy of DataDecide (Magnusson et al. 2025): the order in the larger
experiment is that of means over seeds, and the order in the smaller one that of a single seed. The
share is the mean over these seeds. Two things differ from DataDecide:

- The means leave out the seed whose order is judged. With that seed on both sides, in simulations
  of 4 to 7 equally good runs with 3 to 5 seeds, 57 to 60 % of pairs kept their order instead of 50.
- A pair that ties in the larger experiment has no order to predict and does not count. A pair that
  ties in the smaller one counts half, because a coin would be right half of the time.

The interval is Student's t over seeds. In these simulations it contained the expected share in 90
to 100 % of studies, at a confidence of 95 %. The interval of a mean over tasks is taken over tasks
instead, so it is about further tasks. There is no interval if all seeds (or tasks) agree.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    """The share of pairs of runs with the same order in a smaller and in a larger experiment."""

    growth: Growth  # the quantity that grows
    smaller: str
    larger: str
    task: str = ""  # ALL_TASKS: the mean over tasks; "" for the validation loss of pretraining
    method: str = ""
    label_budget: str = ""  # "" if label budgets grow, and for pretraining
    runs: tuple[str, ...]  # as the larger experiment names them
    num_pairs: int  # pairs of runs that do not tie in the larger experiment
    shares: tuple[float, ...]  # one for each seed or, for ALL_TASKS, for each task
    confidence: float

    @property
    def share(self) -> float | None:
        """The mean share; None without a pair of runs."""
        return float(np.mean(self.shares)) if self.shares else None

    @property
    def ends(self) -> tuple[float, float] | None:
        """The interval of the mean share; None for fewer than two shares, or if all are equal."""
        several = len(self.shares) > 1
        return over_seeds(self.shares, confidence=self.confidence) if several else None

    @property
    def over(self) -> Literal["seeds", "tasks"]:
        return "tasks" if self.task == ALL_TASKS else "seeds"


def kept_orders(smaller: Experiment, larger: Experiment) -> tuple[int, list[float]]:
    """Returns the number of pairs of runs that have an order in the larger experiment, and for each
    seed the share of these pairs that keep their order.

    The order in the smaller experiment is that of the scores with this seed. The order in the
    larger experiment is that of the means over the other seeds. A single seed has no others and
    gives both orders, so its share is about these checkpoints and labels alone.
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
    """Returns the shares for all pairs of label budgets and all pairs of sizes that are contrasted,
    their means over tasks, and the shares for each earlier validation of pretraining and the last.

    Validation losses are compared at equal shares of the runs' steps, because the learning rate
    depends on that share, and only between runs whose losses can be compared.
    """
    rows = [*_label_budgets(scores), *_sizes(contrasts)]
    by_place: dict[tuple[str, ...], list[CarryOver]] = defaultdict(list)
    for row in rows:
        if row.shares:
            place = row.growth, row.smaller, row.larger, row.method, row.label_budget
            by_place[place].append(row)
    means = [
        replace(
            of_place[0],
            task=ALL_TASKS,
            runs=tuple(dict.fromkeys(run for row in of_place for run in row.runs)),
            num_pairs=sum(row.num_pairs for row in of_place),
            shares=tuple(row.share for row in of_place if row.share is not None),
        )
        for of_place in by_place.values()
        if len(of_place) > 1
    ]
    return [*rows, *means, *_pretraining(scores.groups, progress, scores.confidence)]


def _label_budgets(scores: Scores) -> Iterator[CarryOver]:
    places = product(scores.tasks, scores.methods, combinations(scores.label_budgets, 2))
    for task, method, (smaller, larger) in places:
        pairs = [
            (few, many)
            for group in scores.groups
            if (few := scores.cell(group.name, task, method, smaller))
            and (many := scores.cell(group.name, task, method, larger))
        ]
        if pairs:
            yield _of_cells("label budget", smaller, larger, "", pairs)


def _sizes(contrasts: Sequence[Contrast]) -> Iterator[CarryOver]:
    """Yields the shares for all pairs of sizes that the study has contrasts between."""
    by_place: dict[tuple[str, ...], list[tuple[Cell, Cell]]] = defaultdict(list)
    for contrast in contrasts:
        if contrast.axis == "size":
            levels = contrast.level_b, contrast.level_a
            pairs = by_place[*levels, contrast.label_budget, contrast.task, contrast.method]
            used = {cell.group for pair in pairs for cell in pair}
            if not used & {contrast.a.group, contrast.b.group}:
                pairs.append((contrast.b, contrast.a))
    for (smaller, larger, budget, *_), pairs in by_place.items():
        yield _of_cells("size", smaller, larger, budget, pairs)


def _of_cells(
    growth: Growth,
    smaller: str,
    larger: str,
    label_budget: str,
    pairs: Sequence[tuple[Cell, Cell]],
) -> CarryOver:
    """Returns the shares for two experiments. ``pairs`` has the cell of each run in the smaller and
    in the larger experiment."""
    first = pairs[0][1]
    table = by_shared_seeds([cell for pair in pairs for cell in pair])
    merits = table * merit(first.metric, 1.0)
    num_pairs, shares = kept_orders(merits[0::2], merits[1::2])
    return CarryOver(
        growth=growth,
        smaller=smaller,
        larger=larger,
        task=first.task,
        method=first.method,
        label_budget=label_budget,
        runs=tuple(cell.group for _, cell in pairs),
        num_pairs=num_pairs,
        shares=tuple(shares),
        confidence=first.confidence,
    )


def _pretraining(
    all_groups: Sequence[Group], progress: Mapping[RunKey, Progress], confidence: float
) -> Iterator[CarryOver]:
    """Yields the shares for each set of runs with comparable losses and equal numbers of
    validations, over the seeds that all runs of the set have."""
    members: dict[tuple[int, int], list[Group]] = defaultdict(list)
    for place, some in enumerate(comparable(all_groups, progress)):
        for group in some:
            members[place, group.entry.training.num_validations].append(group)
    for (_, number), some in members.items():
        seeds = sorted(set.intersection(*(set(group.seeds) for group in some)))
        if len(some) < 2 or not seeds:
            continue
        losses = np.array(
            [[validation_losses(progress[RunKey(g.name, seed)]) for seed in seeds] for g in some]
        )
        for step in range(number - 1):
            num_pairs, shares = kept_orders(-losses[:, :, step], -losses[:, :, -1])
            yield CarryOver(
                growth="share of pretraining steps",
                smaller=f"{(step + 1) / number:.3g}",
                larger="1",
                runs=tuple(group.name for group in some),
                num_pairs=num_pairs,
                shares=tuple(shares),
                confidence=confidence,
            )
