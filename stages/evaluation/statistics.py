"""How sure a mean or a difference of means is.

Two things vary by chance: the pretraining and the fine-tuning. A statement about *kinds* of runs
needs several pretraining seeds: it rests on the means per pretraining seed, which take in both
sources of chance. (In simulations the t interval on these covers at least the asked share; a
hierarchical bootstrap with so few seeds covers less.) With one pretraining seed, what remains is a
statement about *these checkpoints*, over the seeds of fine-tuning.
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
POWER = 0.8  # the share of studies that would find an effect, with as many seeds as it needs
MANY = 1_000  # seeds, beyond which nobody asks how many


@dataclass(frozen=True)
class Interval:
    """``basis`` is what the interval accounts for.

    ``low`` and ``high`` are None, and so is ``p_value``, where there is none: of one trial, and
    where all seeds agree: mostly since nothing was drawn (no weight was trained) or every trial
    came out at the same constant answer, so that their number is no evidence.
    """

    value: float
    low: float | None
    high: float | None
    p_value: float | None  # of the value 0
    basis: str
    test: str
    seeds_needed: int | None = None  # of a difference, for each side; see ``seeds_needed``

    @property
    def excludes_zero(self) -> bool:
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def mean(values: Values, *, confidence: float) -> Interval:
    """The t interval of a group's mean."""
    basis, by_seed = (
        (PRETRAINING, per_pretrain_seed(values))
        if len(values) > 1
        else (FINETUNING, per_finetune_seed(values))
    )
    sample = list(by_seed.values())
    return _interval(float(np.mean(sample)), basis, "t", [sample], confidence)


def difference(a: Values, b: Values, *, confidence: float) -> Interval:
    """``a`` less ``b``: paired where both have the same seeds, Welch's where they have not."""
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
    """How many seeds (of each of two samples) would find an effect of this size, with spreads as
    here, in POWER of all studies: those with an interval of ``confidence`` that excludes zero.

    From the noncentral t distribution (Cohen 1988, chapter 2). The spread is known from few seeds,
    so the number is rough. None if it is more than MANY.
    """
    deviation = float(np.sqrt(np.mean([np.var(sample, ddof=1) for sample in samples])))
    shift = abs(value) / deviation / len(samples) ** 0.5

    def power(seeds: int) -> float:
        df = len(samples) * (seeds - 1)
        limit, noncentrality = stats.t.ppf((1 + confidence) / 2, df), shift * seeds**0.5
        above = stats.nct.sf(limit, df, noncentrality)
        return float(above + stats.nct.cdf(-limit, df, noncentrality))

    # The normal distribution needs fewer; no shift is worth so many steps that MANY stops it.
    normal = stats.norm.ppf((1 + confidence) / 2) + stats.norm.ppf(POWER)
    if shift == 0 or (fewest := (normal / shift) ** 2) > MANY:
        return None
    numbers = range(max(int(fewest), 2), int(fewest) + 30)
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
    """P-values corrected for their number (Holm 1979): with all below alpha taken as real, the
    chance that any of them is not stays below alpha."""
    order = np.argsort(p_values, kind="stable")
    stepwise = np.asarray(p_values)[order] * np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(stepwise), 1)
    return corrected.tolist()
