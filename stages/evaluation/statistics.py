"""Confidence intervals and tests for means and for differences of means.

An interval covers everything that varied: pretraining seeds, fine-tuning seeds and test rows. If a
model was pretrained only once, its interval is about *these checkpoints*: it does not cover
pretraining seeds.
Simulations of whole studies show that intervals have their nominal coverage:
benchmarks/coverage.md.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stages.evaluation.variance import NO_SPREAD, Between, Prior, Sample, Variance, added

PRETRAINING = "pretraining seeds, fine-tuning seeds and test rows"
CHECKPOINTS = "these checkpoints: fine-tuning seeds and test rows"
TRIALS = "fine-tuning seeds and test rows"  # from scratch, and baselines: nothing was pretrained
ROWS = "test rows only: all seeds agree"
SINGLE = "one trial"
AGREEING = "all seeds agree"
POWER = 0.8  # share of studies that find an effect with ``seeds_needed`` seeds
MAX_SEEDS = 1_000  # largest number of seeds that is reported


@dataclass(frozen=True)
class Interval:
    """A value with its confidence interval; ``basis`` says what the interval covers.

    There is no interval, and ``variance`` is None, for a single trial, or if all trials (of both
    sides of a difference) have equal scores in every row.
    """

    value: float
    variance: Variance | None
    basis: str
    test: str
    confidence: float

    @cached_property
    def _half_width(self) -> float | None:
        return self.variance.half_width(self.confidence) if self.variance else None

    @property
    def low(self) -> float | None:
        return None if self._half_width is None else self.value - self._half_width

    @property
    def high(self) -> float | None:
        return None if self._half_width is None else self.value + self._half_width

    @cached_property
    def p_value(self) -> float | None:
        """The p-value of the hypothesis that the value is 0."""
        return self.variance.p_value(self.value) if self.variance else None

    @property
    def excludes_zero(self) -> bool:
        return self._half_width is not None and abs(self.value) > self._half_width

    @cached_property
    def seeds_needed(self) -> int | None:
        """The fewest seeds in each sample for which the interval would exclude zero in a share
        POWER of studies, if the true effect has this size.

        Seeds are pretraining seeds or, if the interval does not cover these, fine-tuning seeds. The
        number of test rows stays as it is. The estimate is rough, because the spread is estimated
        from few seeds. It is None if it would exceed MAX_SEEDS, if no number of seeds suffices
        without more test rows, or if seeds draw the splits.
        """
        variance = self.variance
        if variance is None or variance.of_draws:
            return None

        def finds(seeds: int) -> bool:
            more = variance.with_units(seeds / variance.between.num_units)
            return more.power(self.value, self.confidence) >= POWER

        seeds = bisect_left(range(2, MAX_SEEDS + 1), True, key=finds) + 2
        return seeds if seeds <= MAX_SEEDS else None


def mean(sample: Sample, *, confidence: float, prior: Prior | None = None) -> Interval:
    """Returns the interval of the mean of a sample, with its variance shrunk towards ``prior``."""
    between = sample.between()
    return _interval(
        sample.mean,
        between.moderated(prior) if between else None,
        sample.row_means,
        "t",
        basis=_basis(sample, fixed=sample.is_fixed),
        confidence=confidence,
        overlap=sample.overlap,
    )


def are_paired(a: Sample, b: Sample) -> bool:
    """Whether both samples have the same two or more units, and so the same draws of labels."""
    return a.num_units > 1 and {*a.keys} == {*b.keys} and a.num_units == b.num_units


def difference(
    a: Sample,
    b: Sample,
    *,
    confidence: float,
    prior: Prior | None = None,
    prior_a: Prior | None = None,
    prior_b: Prior | None = None,
) -> Interval:
    """Returns the interval of the mean of ``a`` minus the mean of ``b``. Test rows are paired.

    Seeds are paired if both samples have the same seeds, because a seed draws the same labels for
    all models; then the variance of the differences is shrunk towards ``prior``. Otherwise the
    variances of both samples, each shrunk towards its own prior, are added as in Welch's t test.
    """
    fixed = a.is_fixed or b.is_fixed
    if are_paired(a, b):
        test, between = "paired t", a.minus(b).between()
        between = between.moderated(prior) if between else None
    else:
        test = "Welch's t"
        sides = [(a, prior_a), (b, prior_b)]
        parts = [
            part.moderated(None if fixed else of_side)
            for side, of_side in sides
            if (part := side.between(within_checkpoints=fixed))
        ]
        between = added(parts) if len(parts) == 2 else None
    if a.overlap is not None:
        test = "corrected resampled t"
    return _interval(
        a.mean - b.mean,
        between,
        a.row_means - b.row_means,
        test,
        basis=_basis(a, b, fixed=fixed),
        confidence=confidence,
        overlap=a.overlap,
    )


def _basis(*samples: Sample, fixed: bool) -> str:
    if any(sample.pretrained for sample in samples):
        return CHECKPOINTS if fixed else PRETRAINING
    published = any(sample.checkpoints == "published" for sample in samples)
    return CHECKPOINTS if published else TRIALS


def _interval(
    value: float,
    between: Between | None,
    rows: np.ndarray,
    test: str,
    *,
    basis: str,
    confidence: float,
    overlap: float | None,
) -> Interval:
    if between is None:
        return Interval(value, None, SINGLE, "none", confidence)
    number, of_rows = len(rows), 0.0
    if number > 1:  # draws of the splits overlap
        of_rows = (1 + number * (overlap or 0.0)) * (float(np.var(rows, ddof=1)) / number)
    # The variances of rows and between units both contain the interaction: it is subtracted once.
    alone = max(of_rows - between.interaction, 0.0)
    variance = Variance(between, alone, number, of_draws=overlap is not None)
    if variance.total < NO_SPREAD**2:
        value = 0.0 if abs(value) < NO_SPREAD else value
        return Interval(value, None, AGREEING, "none", confidence)
    if between.units < NO_SPREAD**2 and overlap is None:
        basis = ROWS
    return Interval(value, variance, basis, test, confidence)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Returns p-values with Holm's correction (Holm 1979), which bounds the family-wise error rate:
    if all below alpha are called significant, the chance of any false positive is at most alpha.
    What is None is not in the family and stays None."""
    known = np.array([p for p in p_values if p is not None])
    order = np.argsort(known, kind="stable")
    corrected = np.empty(len(known))
    stepwise = np.maximum.accumulate(known[order] * np.arange(len(known), 0, -1))
    corrected[order] = np.minimum(stepwise, 1)
    rest = iter(corrected.tolist())
    return [None if p is None else next(rest) for p in p_values]
