"""Power laws of error against size: error = a N^-b (Kaplan et al. 2020, equation 1.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stages.evaluation.statistics import over_seeds

SAME_SIZE = 1.01  # models within this ratio of parameters have one size


class Estimate(NamedTuple):
    """A mean over seeds with its interval; None where all seeds agree."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class PowerLaw:
    """A line in logarithms for each seed.

    The law is the mean of these lines, which is the least-squares line through the mean logarithms
    of the errors. Its interval is Student's t over seeds. The lines are linear in the logarithms of
    the errors, so the interval has its nominal coverage if these have normal noise. It does not say
    whether a power law holds, and claims nothing about other sizes.
    """

    log_factors: tuple[float, ...]
    exponents: tuple[float, ...]  # b
    confidence: float

    @property
    def factor(self) -> float:
        return float(np.exp(np.mean(self.log_factors)))

    @property
    def exponent(self) -> Estimate:
        return self._mean(self.exponents)

    def error(self, size: float) -> tuple[float, float, float]:
        """(value, low, high); all three are equal where all seeds agree."""
        lines = zip(self.log_factors, self.exponents, strict=True)
        found = self._mean([log_a - b * np.log(size) for log_a, b in lines])
        ends = (found.value if end is None else end for end in (found.low, found.high))
        value, low, high = map(float, np.exp([found.value, *ends]))
        return value, low, high

    def _mean(self, by_seed: Sequence[float]) -> Estimate:
        ends = over_seeds(by_seed, confidence=self.confidence) or (None, None)
        return Estimate(float(np.mean(by_seed)), *ends)


def fit(
    sizes: Sequence[int], errors: Sequence[Sequence[float]], *, confidence: float
) -> PowerLaw | None:
    """Fit a law to ``errors``: for each size, one error per seed, in the same order of seeds.

    None with fewer than three sizes or two seeds, or if an error is 0.
    """
    table = np.asarray(errors, dtype=float)  # sizes x seeds
    if num_sizes(sizes) < 3 or table.shape[1] < 2 or table.min() <= 0:
        return None
    slopes, heights = np.polyfit(np.log(sizes), np.log(table), 1)
    return PowerLaw(tuple(heights), tuple(-slopes), confidence)


def num_sizes(sizes: Sequence[int]) -> int:
    """The number of distinct sizes."""
    ordered = sorted(sizes)
    return len(ordered[:1]) + sum(b > SAME_SIZE * a for a, b in pairwise(ordered))
