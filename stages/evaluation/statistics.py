"""Confidence intervals and tests for means and for differences of means.

An interval covers everything that varied: pretraining seeds, fine-tuning seeds and test rows. Where
a run was pretrained once, it is about *these checkpoints* and covers the other two. That it covers
the truth as often as it says is shown by simulation, beside the Multi-Bootstrap (Sellam et al.
2022): benchmarks/coverage.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import stats

from stages.evaluation.variance import Between, Sample, Variance, added

Values = Mapping[int, Mapping[int, float]]  # pretraining seed -> fine-tuning seed -> score

PRETRAINING = "pretraining seeds, fine-tuning seeds and test rows"
CHECKPOINTS = "these checkpoints: fine-tuning seeds and test rows"
TRIALS = "fine-tuning seeds and test rows"  # from scratch, and baselines: nothing was pretrained
ROWS = "test rows only: all seeds agree"
SINGLE = "one trial"
AGREEING = "all seeds agree"
FEWEST_PAIRS = 5  # fewer of them lose more by their degrees of freedom than pairing gains
FEWEST_PAIRS_OF_CHECKPOINTS = 3  # the two sides of which share more
NO_SPREAD = 1e-12  # below the rounding of a difference of two scores
POWER = 0.8  # the share of studies that find an effect with ``seeds_needed`` seeds
MAX_SEEDS = 1_000  # larger numbers of seeds are not reported


@dataclass(frozen=True)
class Interval:
    """A value with its confidence interval; ``basis`` is what it covers.

    ``variance`` is None, and there is no interval, for a single trial, and where all trials of both
    sides have the same score in every row.
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
        """Of the hypothesis that the value is 0."""
        return self.variance.p_value(self.value) if self.variance else None

    @property
    def excludes_zero(self) -> bool:
        return self._half_width is not None and abs(self.value) > self._half_width

    @cached_property
    def seeds_needed(self) -> int | None:
        """The number of units of seeds (of each of two samples; pretraining seeds, or fine-tuning
        seeds where those are not covered) with which POWER of all studies would find an effect of
        this size: have an interval that excludes zero, on as many test rows as here.

        The estimate is rough, because the spread is estimated from few seeds. None for more than
        MAX_SEEDS, and if no number of seeds would do without more test rows.
        """
        if self.variance is None:
            return None
        variance = self.variance

        def finds(seeds: int) -> bool:
            more = variance.with_units(seeds / variance.between.num_units)
            return more.power(self.value, self.confidence) >= POWER

        if not finds(MAX_SEEDS):
            return None
        low, high = 1, MAX_SEEDS  # with the one too few, with the other enough
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if finds(middle) else (middle, high)
        return high


def mean(sample: Sample, *, confidence: float) -> Interval:
    """The interval of the mean of a group."""
    return _of_one(sample, "t", fixed=_fixed(sample), confidence=confidence)


def difference(a: Sample, b: Sample, *, same_checkpoints: bool, confidence: float) -> Interval:
    """The mean of ``a`` minus that of ``b``. Test rows are paired.

    Seeds are paired, too, if both sides have the same ones and enough of them; otherwise their
    variances are added up as Welch's t does, which is wider than needed where the sides share drawn
    labels. ``same_checkpoints``: both sides were fine-tuned from the same ones.
    """
    fixed = _fixed(a) or _fixed(b)
    fewest = FEWEST_PAIRS_OF_CHECKPOINTS if same_checkpoints else FEWEST_PAIRS
    alike = {*a.keys} == {*b.keys} and a.checkpoints == b.checkpoints
    by_checkpoint = a.pretrained and not fixed
    if alike and (a.num_checkpoints if by_checkpoint else len(a.keys)) >= fewest:
        return _of_one(a.minus(b), "paired t", fixed=fixed, confidence=confidence)
    parts = [side.between(fixed_checkpoints=fixed) for side in (a, b)]
    known = [part for part in parts if part is not None]
    rows = a.row_means - b.row_means
    return _interval(
        a.mean - b.mean,
        added(known) if len(known) == 2 else None,
        rows,
        "Welch's t",
        basis=_basis(a, b, fixed=fixed),
        confidence=confidence,
    )


def _of_one(sample: Sample, test: str, *, fixed: bool, confidence: float) -> Interval:
    between = sample.between(fixed_checkpoints=fixed)
    basis = _basis(sample, fixed=fixed)
    rows = sample.row_means
    return _interval(sample.mean, between, rows, test, basis=basis, confidence=confidence)


def _fixed(sample: Sample) -> bool:
    """Whether nothing is known of other checkpoints of its kind."""
    return sample.pretrained and sample.num_checkpoints == 1


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
) -> Interval:
    if between is None:
        return Interval(value, None, SINGLE, "none", confidence)
    covers_pretraining = basis == PRETRAINING
    variance = Variance.crossed(between, rows, covers_pretraining=covers_pretraining)
    if variance.total < NO_SPREAD**2:
        value = 0.0 if abs(value) < NO_SPREAD else value
        return Interval(value, None, AGREEING, "none", confidence)
    if between.units < NO_SPREAD**2:
        basis = ROWS
    return Interval(value, variance, basis, test, confidence)


def over_seeds(values: Sequence[float], *, confidence: float) -> tuple[float, float] | None:
    """Student's t interval of a mean over seeds alone; None where all of them agree."""
    if np.ptp(values) < NO_SPREAD:
        return None
    low, high = stats.ttest_1samp(values, 0).confidence_interval(confidence)
    return float(low), float(high)


def per_pretrain_seed(values: Values) -> dict[int, float]:
    """The mean over fine-tuning seeds for each pretraining seed."""
    return {seed: float(np.mean(list(by_seed.values()))) for seed, by_seed in values.items()}


def per_finetune_seed(values: Values) -> dict[int, float]:
    """The mean over pretraining seeds for each fine-tuning seed."""
    seeds = sorted({seed for by_seed in values.values() for seed in by_seed})
    return {
        seed: float(np.mean([by_seed[seed] for by_seed in values.values() if seed in by_seed]))
        for seed in seeds
    }


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values with Holm's correction (Holm 1979), which bounds the family-wise error rate: if all
    below alpha are called significant, the chance of any false positive is at most alpha."""
    order = np.argsort(p_values, kind="stable")
    stepwise = np.asarray(p_values)[order] * np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(stepwise), 1)
    return corrected.tolist()
