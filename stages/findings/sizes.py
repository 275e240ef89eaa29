"""Scores as a function of the number of parameters, and power laws through three sizes or more.

A power law is error = a N^-b (Kaplan et al. 2020, equation 1.1).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stages.evaluation.metrics import scale_of
from stages.evaluation.statistics import over_seeds
from stages.findings.cells import Cell, by_shared_seeds
from stages.findings.groups import Group
from stages.findings.scores import Scores

SAME_SIZE = 1.01  # models within this ratio of parameters count as one size


class Estimate(NamedTuple):
    """A mean over seeds with its interval; ``low`` and ``high`` are None if all seeds agree."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class PowerLaw:
    """A power law, stored as one line for each seed: log error over log size.

    The law is the mean of these lines, which is the least-squares line through the mean log errors.
    Its interval is Student's t over seeds. A fitted line depends linearly on the log errors, so the
    interval has its nominal coverage if the noise of the log errors is normal. The interval does
    not say whether a power law holds, and claims nothing about sizes that were not measured.
    """

    log_factors: tuple[float, ...]  # log a
    exponents: tuple[float, ...]  # b
    confidence: float

    @property
    def factor(self) -> float:
        return float(np.exp(np.mean(self.log_factors)))

    @property
    def exponent(self) -> Estimate:
        return self._mean(self.exponents)

    def error(self, size: float) -> tuple[float, float, float]:
        """Returns (value, low, high) of the error that the law predicts for a size. All three are
        equal if all seeds agree."""
        lines = zip(self.log_factors, self.exponents, strict=True)
        predicted = self._mean([log_a - b * np.log(size) for log_a, b in lines])
        ends = (predicted.value if end is None else end for end in (predicted.low, predicted.high))
        value, low, high = map(float, np.exp([predicted.value, *ends]))
        return value, low, high

    def _mean(self, by_seed: Sequence[float]) -> Estimate:
        ends = over_seeds(by_seed, confidence=self.confidence) or (None, None)
        return Estimate(float(np.mean(by_seed)), *ends)


def fit(
    sizes: Sequence[int], errors: Sequence[Sequence[float]], *, confidence: float
) -> PowerLaw | None:
    """Fits a law to ``errors``: one row for each size, with the seeds in the same order.

    Returns None for fewer than three sizes or two seeds, or if an error is 0.
    """
    table = np.asarray(errors, dtype=float)  # sizes x seeds
    if num_sizes(sizes) < 3 or table.shape[1] < 2 or table.min() <= 0:
        return None
    slopes, heights = np.polyfit(np.log(sizes), np.log(table), 1)
    return PowerLaw(tuple(heights), tuple(-slopes), confidence)


def num_sizes(sizes: Sequence[int]) -> int:
    """Returns the number of distinct sizes; neighbours within ``SAME_SIZE`` count as one."""
    ordered = sorted(sizes)
    return len(ordered[:1]) + sum(b > SAME_SIZE * a for a, b in pairwise(ordered))


def cells_with_sizes(scores: Scores, task: str, label_budget: str) -> list[tuple[Cell, int]]:
    """Returns the best cell of each pretrained group and the number of parameters that its trials
    use. The best is chosen among the methods that train more than half of these parameters or, if
    none does, among all methods."""

    def trains_most(cell: Cell) -> bool:
        return 2 * (cell.amounts["num_trained_params"] or 0) > (cell.amounts["num_params"] or 0)

    cells = scores.run_cells(task, label_budget)
    points = []
    for group in scores.groups:
        own = [cell for cell in cells if cell.group == group.name]
        if own and group.pretrained:
            best = max(own, key=lambda cell: (trains_most(cell), cell.merit))
            points.append((best, best.amounts["num_params"] or 0))
    return points


def power_laws(
    cells: Sequence[tuple[Cell, int]], group_of: Mapping[str, Group]
) -> list[tuple[Group, PowerLaw, list[int]]]:
    """Returns a law for each combination of architecture, objective, training set and tokenizer
    that has three sizes or more, each with its first group and its sizes."""
    families: dict[str, list[tuple[Cell, int]]] = defaultdict(list)
    for cell, size in cells:
        group = group_of[cell.group]
        alike = (group.architecture, group.entry.objective, group.corpus, group.entry.tokenizer)
        families[repr(alike)].append((cell, size))
    laws = []
    for members in families.values():
        sizes, metric = [size for _, size in members], members[0][0].metric
        by_cell = by_shared_seeds([cell for cell, _ in members]).tolist()
        errors = [[error(metric, score) for score in scores] for scores in by_cell]
        if law := fit(sizes, errors, confidence=cells[0][0].confidence):
            laws.append((group_of[members[0][0].group], law, sizes))
    return laws


def error(metric: str, value: float) -> float:
    """Returns 1 minus the score, or the score itself if lower is better. The function is its own
    inverse."""
    return value if scale_of(metric).lower_is_better else 1 - value
