"""The variance of a mean score and of a difference, from three sources of chance.

A trial's score varies with the pretraining seed, with the fine-tuning seed (the order of the data,
new weights, the labels that are drawn) and with the test rows. Seeds and rows are crossed: every
trial predicts every row. So the variance of a mean is that between units of seeds, plus that
between rows, minus that of their interaction, which both contain (Cameron, Gelbach and Miller 2011,
equation 2.4). Three seeds say little about a variance, so it is shrunk towards that of other cells
(``moderation.py``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy import special

Key = tuple[int, int]  # pretraining seed, fine-tuning seed
Source = Literal["pretraining seeds", "fine-tuning seeds", "test rows"]
Checkpoints = Literal["pretrained here", "published", "none"]

NO_SPREAD = 1e-12  # below the rounding of a difference of two scores


@dataclass(frozen=True)
class Prior:
    """What other cells say about the variance between units, and how many degrees of freedom it
    counts for (Smyth 2004). Of a paired difference it is the variance of the pairs' differences."""

    variance: float
    df: float


@dataclass(frozen=True)
class Sample:
    """The trials of a group, or the differences of paired trials.

    Its units, between which the variance of its mean is estimated, are pretraining seeds, each with
    all of its fine-tuning seeds. If it has one pretraining seed, they are its trials. If its
    ``checkpoints`` were pretrained here, the trials of a pretraining seed share one; a published
    checkpoint is the same for all trials, and from scratch ("none") each trial has its own weights.
    """

    keys: tuple[Key, ...]
    values: Float[np.ndarray, " trials"]
    rows: Float[np.ndarray, "trials n"]  # scores of test rows
    checkpoints: Checkpoints

    @property
    def pretrained(self) -> bool:
        return self.checkpoints == "pretrained here"

    @cached_property
    def num_checkpoints(self) -> int:
        return len({pretrain_seed for pretrain_seed, _ in self.keys})

    @property
    def is_fixed(self) -> bool:
        """Whether it has one checkpoint that was pretrained here, so that nothing is known of what
        another pretraining seed gives."""
        return self.pretrained and self.num_checkpoints == 1

    @cached_property
    def _trials_of_seeds(self) -> dict[int, list[int]]:
        seeds: dict[int, list[int]] = {}
        for trial, (pretrain_seed, _) in enumerate(self.keys):
            seeds.setdefault(pretrain_seed, []).append(trial)
        return seeds

    @cached_property
    def unit_keys(self) -> tuple[Key, ...]:
        """Names the units: two samples with the same units can be paired."""
        if self.num_checkpoints == 1:
            return self.keys
        return tuple((seed, len(trials)) for seed, trials in self._trials_of_seeds.items())

    @property
    def num_units(self) -> int:
        return len(self.unit_keys)

    @cached_property
    def unit_values(self) -> Float[np.ndarray, " units"]:
        return self._unit_means(self.values)

    @cached_property
    def unit_rows(self) -> Float[np.ndarray, "units n"]:
        return self._unit_means(self.rows)

    def _unit_means(self, numbers: np.ndarray) -> np.ndarray:
        if self.num_checkpoints in (1, len(self.keys)):
            return numbers.astype(float)
        trials = self._trials_of_seeds.values()
        return np.array([numbers[each].mean(axis=0, dtype=float) for each in trials])

    @cached_property
    def mean(self) -> float:
        return float(self.unit_values.mean())

    @cached_property
    def row_means(self) -> Float[np.ndarray, " n"]:
        return self.unit_rows.mean(axis=0)

    def of_seeds(self, other: "Sample") -> "Sample":
        """Those of its trials that have a pretraining seed of ``other``; all if none has."""
        seeds = {pretrain_seed for pretrain_seed, _ in other.keys}
        kept = [i for i, (pretrain_seed, _) in enumerate(self.keys) if pretrain_seed in seeds]
        if not kept:
            return self
        keys = tuple(self.keys[i] for i in kept)
        return Sample(keys, self.values[kept], self.rows[kept], self.checkpoints)

    def repeated(self) -> "Sample":
        """A single trial that is the same for all seeds, twice: nothing varies but its rows."""
        seed, again = self.keys[0]
        keys = ((seed, again), (seed, again + 1))
        return Sample(
            keys, np.repeat(self.values, 2), np.repeat(self.rows, 2, axis=0), self.checkpoints
        )

    def minus(self, other: "Sample") -> "Sample":
        """The differences of trials with the same key; both samples have the same keys."""
        places = {key: place for place, key in enumerate(other.keys)}
        order = [places[key] for key in self.keys]
        values, rows = self.values - other.values[order], self.rows - other.rows[order]
        checkpoints = other.checkpoints if other.pretrained else self.checkpoints
        return Sample(self.keys, values, rows, checkpoints)

    def between(self, *, within_checkpoints: bool = False) -> "Between | None":
        """The variance of the mean between units or, ``within_checkpoints``, between the trials of
        each pretraining seed. None with fewer than two units of a kind."""
        if within_checkpoints and self.pretrained:
            return self._within()
        if self.num_units < 2:
            return None
        units = _between(self.unit_values, self.unit_rows)
        within = self._within() if self.num_checkpoints > 1 else units
        return replace(units, finetuning=within.units if within else None)

    def _within(self) -> "Between | None":
        """The variance between trials within each pretraining seed."""
        parts = []
        for trials in self._trials_of_seeds.values():
            if len(trials) < 2:
                return None
            parts.append(_between(self.values[trials], self.rows[trials]))
        found = added(parts)
        weight = 1 / len(parts) ** 2  # of a mean over seeds
        units, interaction = weight * found.units, weight * found.interaction
        return Between(units, found.df, interaction, finetuning=units, num_units=found.num_units)


@dataclass(frozen=True)
class Between:
    """The variance of a mean between units, with its degrees of freedom. ``finetuning`` is the part
    of it that more fine-tuning seeds reduce (None: not known, since each checkpoint has one trial),
    and ``interaction`` the part that more test rows reduce."""

    units: float
    df: float
    interaction: float
    finetuning: float | None
    num_units: float  # of a sample, on average
    prior_df: float = 0.0  # those of ``df`` that come from other cells

    def moderated(self, prior: Prior | None) -> "Between":
        """The variance shrunk towards that of other cells (Smyth 2004, eq. 3): the mean of both,
        weighted with their degrees of freedom, which add up. The interaction with test rows bounds
        both from below, since it is a part of either."""
        if prior is None or prior.df <= 0 or self.units < NO_SPREAD**2:
            return self  # seeds that agree are no sample of a variance
        elsewhere = max(prior.variance / self.num_units, self.interaction)
        df = prior.df + self.df
        units = (prior.df * elsewhere + self.df * self.units) / df
        return replace(self, units=units, df=df, prior_df=prior.df)


def _between(values: Float[np.ndarray, " units"], rows: Float[np.ndarray, "units n"]) -> Between:
    """The interaction bounds the variance between units from below: it is a part of it."""
    number, num_rows = rows.shape
    centred = rows - rows.mean(axis=1, keepdims=True, dtype=float)
    centred -= centred.mean(axis=0)
    df = (number - 1) * max(num_rows - 1, 1)
    interaction = float(np.vdot(centred, centred)) / df / (number * num_rows)
    units = max(float(np.var(values, ddof=1)) / number, interaction)
    return Between(units, number - 1, interaction, finetuning=None, num_units=number)


def added(parts: Sequence[Between], *, weight: float = 1.0) -> Between:
    """The variance of a sum of independent means, each times ``weight``, with the degrees of
    freedom of Welch (1947) and Satterthwaite (1946)."""
    units = sum(part.units for part in parts)
    squares = sum(part.units**2 / part.df for part in parts)
    finetuning = [part.finetuning for part in parts]
    df = units**2 / squares if squares else min(part.df for part in parts)
    share = sum(part.prior_df / part.df for part in parts) / len(parts)
    return Between(
        weight**2 * units,
        df,
        weight**2 * sum(part.interaction for part in parts),
        None if None in finetuning else weight**2 * sum(each or 0.0 for each in finetuning),
        float(np.mean([part.num_units for part in parts])),
        prior_df=share * df,
    )


def of_rows(rows: Float[np.ndarray, " n"]) -> float:
    """The variance of a mean over test rows."""
    return float(np.var(rows, ddof=1)) / len(rows) if len(rows) > 1 else 0.0


@dataclass(frozen=True)
class Variance:
    """The variance of a mean or of a difference of means: between units of seeds, and of the rows
    alone."""

    between: Between
    rows: float
    num_rows: int
    covers_pretraining: bool

    @classmethod
    def crossed(
        cls, between: Between, rows: Float[np.ndarray, " n"], *, covers_pretraining: bool
    ) -> "Variance":
        """``rows`` are means over units, whose variance contains the interaction, too."""
        alone = max(of_rows(rows) - between.interaction, 0.0)
        return cls(between, alone, len(rows), covers_pretraining)

    @property
    def total(self) -> float:
        return self.between.units + self.rows

    @property
    def df(self) -> float:
        """Satterthwaite's degrees of freedom of the sum of both."""
        parts = self.between.units**2 / self.between.df + self.rows**2 / max(self.num_rows - 1, 1)
        return self.total**2 / parts

    def half_width(self, confidence: float) -> float:
        """Half the width of the confidence interval."""
        return -float(special.stdtrit(self.df, (1 - confidence) / 2)) * self.total**0.5

    def p_value(self, value: float) -> float:
        """Of the hypothesis that the true value is 0: 1 minus the confidence of the interval that
        ends there."""
        return 2 * float(special.stdtr(self.df, -abs(value) / self.total**0.5))

    def power(self, value: float, confidence: float) -> float:
        """The share of studies that would find an effect of this size: from the noncentral t
        distribution (Cohen 1988, chapter 2)."""
        limit = -float(special.stdtrit(self.df, (1 - confidence) / 2))
        shift = abs(value) / self.total**0.5
        # NaN is what the function gives for a probability too small for it.
        below, above = np.nan_to_num(special.nctdtr(self.df, shift, [-limit, limit]))
        return float(1 - above + below)

    def with_units(self, times: float) -> "Variance":
        """With ``times`` as many units, and as much said by other cells."""
        now = self.between
        number = times * now.num_units
        own_df = (now.df - now.prior_df) * (number - 1) / (now.num_units - 1)
        between = replace(
            now,
            units=now.units / times,
            df=now.prior_df + own_df,
            num_units=number,
            interaction=now.interaction / times,
            finetuning=None if now.finetuning is None else now.finetuning / times,
        )
        return replace(self, between=between)

    def twice(self, source: Source) -> "Variance | None":
        """With twice as many of them; None if that is not known, or not what the variance is of."""
        now = self.between
        if source == "test rows":
            units = now.units - now.interaction / 2
            return replace(
                self,
                between=replace(now, units=units),
                rows=self.rows / 2,
                num_rows=2 * self.num_rows,
            )
        if source == "pretraining seeds":
            return self.with_units(2) if self.covers_pretraining else None
        if not self.covers_pretraining:
            return self.with_units(2)
        if now.finetuning is None:
            return None
        units = max(now.units - now.finetuning / 2, now.units / 2)
        return replace(self, between=replace(now, units=units))

    def narrower(self, source: Source, confidence: float) -> float | None:
        """By what share of its width the interval would shrink with twice as many of them."""
        more = self.twice(source)
        return 1 - more.half_width(confidence) / self.half_width(confidence) if more else None

    def share(self, source: Source) -> float | None:
        """Of the variance; None is not covered or not known. What an unknown share of fine-tuning
        seeds is belongs to pretraining seeds."""
        within = min(self.between.finetuning or 0.0, self.between.units)
        match source:
            case "test rows":
                return self.rows / self.total
            case "fine-tuning seeds":
                return None if self.between.finetuning is None else within / self.total
            case "pretraining seeds":
                between = self.between.units - within
                return between / self.total if self.covers_pretraining else None
