"""How the error falls with size: error = a N^-b (Kaplan et al. 2020, equation 1.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from stages.evaluation.statistics import Interval, mean

SAME_SIZE = 1.01  # a ratio of parameters up to this is none


@dataclass(frozen=True)
class PowerLaw:
    """A line in logarithms for each seed.

    The law is their mean, which is the least-squares line through the mean logarithms of the
    errors, with Student's t interval over seeds: the lines are linear in what is drawn by chance,
    so that normal noise of the logarithms is covered as asked for. The interval says nothing of
    whether the law holds, nor of sizes beyond those it was fitted to.
    """

    log_factors: tuple[float, ...]
    exponents: tuple[float, ...]  # b
    confidence: float

    @property
    def factor(self) -> float:
        return float(np.exp(np.mean(self.log_factors)))

    @property
    def exponent(self) -> Interval:
        return self._mean(self.exponents)

    def error(self, size: float) -> tuple[float, float, float]:
        """(Value, low, high); all three the same where all seeds agree."""
        lines = zip(self.log_factors, self.exponents, strict=True)
        found = self._mean([log_a - b * np.log(size) for log_a, b in lines])
        ends = (found.value if end is None else end for end in (found.low, found.high))
        value, low, high = map(float, np.exp([found.value, *ends]))
        return value, low, high

    def _mean(self, by_seed: Sequence[float]) -> Interval:
        return mean({0: dict(enumerate(map(float, by_seed)))}, confidence=self.confidence)


def fit(
    sizes: Sequence[int], errors: Sequence[Sequence[float]], *, confidence: float
) -> PowerLaw | None:
    """The law through ``errors``, of each size those of the seeds in one order.

    None where there are fewer than three sizes or two seeds, or where an error is 0.
    """
    table = np.asarray(errors, dtype=float)  # sizes x seeds
    if num_sizes(sizes) < 3 or table.shape[1] < 2 or table.min() <= 0:
        return None
    slopes, heights = np.polyfit(np.log(sizes), np.log(table), 1)
    return PowerLaw(tuple(heights), tuple(-slopes), confidence)


def num_sizes(sizes: Sequence[int]) -> int:
    """How many there are that differ."""
    ordered = sorted(sizes)
    return len(ordered[:1]) + sum(b > SAME_SIZE * a for a, b in pairwise(ordered))
