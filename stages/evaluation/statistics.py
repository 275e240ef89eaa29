"""Confidence intervals and tests for means and for differences of means.

An interval covers everything that varied: pretraining seeds, fine-tuning seeds and test rows. If a
model was pretrained only once, its interval is about *these checkpoints*: it does not cover
pretraining seeds.
Simulations of whole studies show that intervals have their nominal coverage:
benchmarks/coverage.md.
"""

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


@dataclass(frozen=True)
class Estimate:
    """A mean or a difference with its interval; ``low`` and ``high`` are None if unknown."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def excludes_zero(self) -> bool:
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


@dataclass(frozen=True, kw_only=True)
class Interval(Estimate):
    """An estimate with its variance; ``basis`` says what the interval covers.

    There is no interval, and ``variance`` is None, for a single trial, or if all trials (of both
    sides of a difference) have equal scores in every row.
    """

    variance: Variance | None
    basis: str
    test: str
    confidence: float

    @cached_property
    def p_value(self) -> float | None:
        """The p-value of the hypothesis that the value is 0."""
        return self.variance.p_value(self.value) if self.variance else None


def mean(sample: Sample, *, confidence: float, prior: Prior | None = None) -> Interval:
    """Returns the interval of the mean of a sample, with its variance shrunk towards ``prior``."""
    between = sample.between()
    return _interval([sample], between and between.moderated(prior), "t", confidence)


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
    if are_paired(a, b):
        test, between = "paired t", a.minus(b).between()
        between = between and between.moderated(prior)
    else:
        test, fixed = "Welch's t", a.is_fixed or b.is_fixed
        parts = [
            part.moderated(None if fixed else of_side)
            for side, of_side in ((a, prior_a), (b, prior_b))
            if (part := side.between(within_checkpoints=fixed))
        ]
        between = added(parts) if len(parts) == 2 else None
    return _interval([a, b], between, test, confidence)


def _interval(
    samples: Sequence[Sample], between: Between | None, test: str, confidence: float
) -> Interval:
    """Returns the interval of the mean of a sample, or of the first less the second."""
    first, *subtracted = samples
    value, rows, overlap = first.mean, first.row_means, first.overlap
    for other in subtracted:
        value, rows = value - other.mean, rows - other.row_means
        test = test if overlap is None else "corrected resampled t"
    if between is None:
        return Interval(value, variance=None, basis=SINGLE, test="none", confidence=confidence)
    number, of_rows = len(rows), 0.0
    if number > 1:  # draws of the splits overlap
        of_rows = (1 + number * (overlap or 0.0)) * (float(np.var(rows, ddof=1)) / number)
    # The variances of rows and between units both contain the interaction: it is subtracted once.
    alone = max(of_rows - between.interaction, 0.0)
    variance = Variance(between, alone, number, of_draws=overlap is not None)
    if variance.total < NO_SPREAD**2:
        value = 0.0 if abs(value) < NO_SPREAD else value
        return Interval(value, variance=None, basis=AGREEING, test="none", confidence=confidence)
    half = variance.half_width(confidence)
    return Interval(
        value,
        value - half,
        value + half,
        variance=variance,
        basis=ROWS if between.units < NO_SPREAD**2 and overlap is None else _basis(samples),
        test=test,
        confidence=confidence,
    )


def _basis(samples: Sequence[Sample]) -> str:
    if any(sample.pretrained for sample in samples):
        return CHECKPOINTS if any(sample.is_fixed for sample in samples) else PRETRAINING
    published = any(sample.checkpoints == "published" for sample in samples)
    return CHECKPOINTS if published else TRIALS


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Returns p-values with Holm's correction (Holm 1979), which bounds the family-wise error rate:
    if all below alpha are called significant, the chance of any false positive is at most alpha.
    None is outside of the family and stays None."""
    known = np.array([p for p in p_values if p is not None])
    order = np.argsort(known, kind="stable")
    corrected = np.empty(len(known))
    stepwise = np.maximum.accumulate(known[order] * np.arange(len(known), 0, -1))
    corrected[order] = np.minimum(stepwise, 1)
    rest = iter(corrected.tolist())
    return [None if p is None else next(rest) for p in p_values]
