"""Confidence intervals and tests for means and for differences of means.

Scores vary with the pretraining seed and with the fine-tuning seed. A claim about *kinds* of runs
needs several pretraining seeds: it uses the mean per pretraining seed, which varies with both. (In
simulations the t interval on these means has at least its nominal coverage; a hierarchical
bootstrap with so few seeds has less.) With one pretraining seed, intervals over the fine-tuning
seeds support claims about *these checkpoints* only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

Values = Mapping[int, Mapping[int, float]]  # pretraining seed -> fine-tuning seed -> score

PRETRAINING = "pretraining seeds"
FINETUNING = "fine-tuning seeds only"
SINGLE = "one trial"
AGREEING = "all seeds agree"
NO_SPREAD = 1e-12  # below the rounding of a difference of two scores
POWER = 0.8  # the share of studies that find an effect with ``seeds_needed`` seeds
MAX_SEEDS = 1_000  # larger numbers of seeds are not reported
SEARCH_STEPS = 30


@dataclass(frozen=True)
class Interval:
    """A value with its confidence interval; ``basis`` is the source of variation that it covers.

    ``low``, ``high`` and ``p_value`` are None for a single trial, and where all seeds agree. Seeds
    mostly agree because no weight was trained or because every trial predicts one constant answer,
    so their number is no evidence.
    """

    value: float
    low: float | None
    high: float | None
    p_value: float | None  # of the hypothesis that the value is 0
    basis: str
    test: str
    seeds_needed: int | None = None  # on each side of a difference; see ``seeds_needed``

    @property
    def excludes_zero(self) -> bool:
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def mean(values: Values, *, confidence: float) -> Interval:
    """The t interval of the mean of a group."""
    basis, by_seed = (
        (PRETRAINING, per_pretrain_seed(values))
        if len(values) > 1
        else (FINETUNING, per_finetune_seed(values))
    )
    sample = list(by_seed.values())
    return _interval(float(np.mean(sample)), basis, "t", [sample], confidence)


def difference(a: Values, b: Values, *, confidence: float) -> Interval:
    """``a`` minus ``b``: the paired t interval if both have the same seeds, otherwise Welch's."""
    if len(a) > 1 and len(b) > 1:
        basis, x, y = PRETRAINING, per_pretrain_seed(a), per_pretrain_seed(b)
    else:
        basis, x, y = FINETUNING, per_finetune_seed(a), per_finetune_seed(b)
    value = float(np.mean(list(x.values())) - np.mean(list(y.values())))
    if x.keys() == y.keys():
        return _interval(value, basis, "paired t", [[x[seed] - y[seed] for seed in x]], confidence)
    return _interval(value, basis, "Welch's t", [list(x.values()), list(y.values())], confidence)


def _interval(
    value: float, basis: str, test: str, samples: list[list[float]], confidence: float
) -> Interval:
    if min(map(len, samples)) < 2:
        return Interval(value, None, None, None, SINGLE, "none")
    if max(np.ptp(sample) for sample in samples) < NO_SPREAD:
        value = 0.0 if abs(value) < NO_SPREAD else value
        return Interval(value, None, None, None, AGREEING, "none")
    result: Any = (
        stats.ttest_1samp(samples[0], 0)
        if len(samples) == 1
        else stats.ttest_ind(*samples, equal_var=False)
    )
    low, high = result.confidence_interval(confidence)
    return Interval(
        value,
        float(low),
        float(high),
        float(result.pvalue),
        basis,
        test,
        seeds_needed(value, samples, confidence=confidence),
    )


def seeds_needed(value: float, samples: list[list[float]], *, confidence: float) -> int | None:
    """The number of seeds (of each of two samples) with which POWER of all studies would find an
    effect of this size and spread: have an interval of ``confidence`` that excludes zero.

    From the noncentral t distribution (Cohen 1988, chapter 2). The estimate is rough, because the
    spread is estimated from few seeds. None for an effect of 0 and for more than MAX_SEEDS.
    """
    deviation = float(np.sqrt(np.mean([np.var(sample, ddof=1) for sample in samples])))
    shift = abs(value) / deviation / len(samples) ** 0.5

    def power(seeds: int) -> float:
        df = len(samples) * (seeds - 1)
        limit, noncentrality = stats.t.ppf((1 + confidence) / 2, df), shift * seeds**0.5
        above = stats.nct.sf(limit, df, noncentrality)
        return float(above + stats.nct.cdf(-limit, df, noncentrality))

    # The normal distribution gives a lower bound, from which the search needs at most 30 steps.
    normal = stats.norm.ppf((1 + confidence) / 2) + stats.norm.ppf(POWER)
    if shift == 0 or (fewest := (normal / shift) ** 2) > MAX_SEEDS:
        return None
    numbers = range(max(int(fewest), 2), int(fewest) + SEARCH_STEPS)
    return next((seeds for seeds in numbers if power(seeds) >= POWER), None)


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
