"""The variance of a mean score and of a difference, from three sources of chance.

A trial's score varies with the pretraining seed, with the fine-tuning seed (the order of the data,
new weights, the labels that are drawn) and with the test rows. Seeds and rows are crossed: every
trial predicts every row. So the variance of a mean is that between units of seeds, plus that
between rows, minus that of their interaction, which both contain (Cameron, Gelbach and Miller 2011,
equation 2.4).
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

SMALLEST_P = 1e-100  # smaller p-values are 0


@dataclass(frozen=True)
class Sample:
    """The trials of a group, or the differences of paired trials.

    If its ``checkpoints`` were pretrained here, the trials of a pretraining seed share one.
    Otherwise a trial shares nothing with another one that varies: a published checkpoint is the
    same for all, and from scratch ("none") each trial has its own weights.
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

    @cached_property
    def _by_seed(self) -> list[list[int]]:
        """The trials of each pretraining seed."""
        seeds = dict.fromkeys(pretrain_seed for pretrain_seed, _ in self.keys)
        return [[i for i, (seed, _) in enumerate(self.keys) if seed == each] for each in seeds]

    @cached_property
    def mean(self) -> float:
        return float(np.mean([self.values[trials].mean() for trials in self._by_seed]))

    @cached_property
    def row_means(self) -> Float[np.ndarray, " n"]:
        return self._seed_means(self.rows).mean(axis=0)

    def _seed_means(self, numbers: np.ndarray) -> np.ndarray:
        return np.array([numbers[trials].mean(axis=0, dtype=float) for trials in self._by_seed])

    def of_seeds(self, other: "Sample") -> "Sample":
        """Those of its trials that have a pretraining seed of ``other``; all if none has."""
        seeds = {pretrain_seed for pretrain_seed, _ in other.keys}
        kept = [i for i, (pretrain_seed, _) in enumerate(self.keys) if pretrain_seed in seeds]
        if not kept:
            return self
        keys = tuple(self.keys[i] for i in kept)
        return Sample(keys, self.values[kept], self.rows[kept], self.checkpoints)

    def repeated(self) -> "Sample":
        """Of a single trial that is the same for all seeds: nothing varies but its rows."""
        seed, again = self.keys[0]
        keys = ((seed, again), (seed, again + 1))
        return Sample(
            keys, np.repeat(self.values, 2), np.repeat(self.rows, 2, axis=0), self.checkpoints
        )

    def minus(self, other: "Sample") -> "Sample":
        """Trial by trial; both have the same keys."""
        order = [other.keys.index(key) for key in self.keys]
        values, rows = self.values - other.values[order], self.rows - other.rows[order]
        return Sample(self.keys, values, rows, self.checkpoints)

    def between(self, *, fixed_checkpoints: bool) -> "Between | None":
        """The variance of the mean between units: between checkpoints that were pretrained here,
        or between trials, if need be within ``fixed_checkpoints``. None with fewer than two units
        of a kind."""
        if self.pretrained and not fixed_checkpoints:
            if self.num_checkpoints < 2:
                return None
            found = _between(self._seed_means(self.values), self._seed_means(self.rows))
            within = self._within()
            return replace(found, finetuning=within.units if within else None)
        return self._within() if self.pretrained else _of_trials(self.values, self.rows)

    def _within(self) -> "Between | None":
        """The variance between trials within each checkpoint."""
        parts = [_of_trials(self.values[t], self.rows[t]) for t in self._by_seed]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        found = added(known)
        weight = 1 / len(known) ** 2  # of a mean over checkpoints
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


def _of_trials(
    values: Float[np.ndarray, " trials"], rows: Float[np.ndarray, "trials n"]
) -> Between | None:
    if len(values) < 2:
        return None
    found = _between(values, rows)
    return replace(found, finetuning=found.units)


def _between(values: Float[np.ndarray, " units"], rows: Float[np.ndarray, "units n"]) -> Between:
    """The interaction bounds the variance between units from below: it is a part of it."""
    number, num_rows = rows.shape
    centred = rows - rows.mean(axis=1, keepdims=True, dtype=float)
    centred -= centred.mean(axis=0)
    df = (number - 1) * max(num_rows - 1, 1)
    interaction = float(np.vdot(centred, centred)) / df / (number * num_rows)
    units = max(float(np.var(values, ddof=1)) / number, interaction)
    return Between(units, number - 1, interaction, finetuning=None, num_units=number)


def added(parts: Sequence[Between]) -> Between:
    """Of independent samples, with Welch's degrees of freedom."""
    units = sum(part.units for part in parts)
    squares = sum(part.units**2 / part.df for part in parts)
    finetuning = [part.finetuning for part in parts]
    return Between(
        units,
        units**2 / squares if squares else min(part.df for part in parts),
        sum(part.interaction for part in parts),
        None if None in finetuning else sum(each or 0.0 for each in finetuning),
        float(np.mean([part.num_units for part in parts])),
    )


def of_rows(rows: Float[np.ndarray, " n"]) -> float:
    """The variance of a mean over test rows."""
    return float(np.var(rows, ddof=1)) / len(rows) if len(rows) > 1 else 0.0


@dataclass(frozen=True)
class Variance:
    """Of a mean or of a difference of means: between units of seeds, and of the rows alone."""

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

    def half_width(self, confidence: float) -> float:
        """Of the confidence interval."""
        return self._quantile((1 - confidence) / 2) * self.total**0.5

    def _quantile(self, tail: float) -> float:
        """The mean of the quantiles of t for units and for rows, weighted with their variances
        (Cochran and Cox 1957, section 4.14). In simulations it covers with two or three units,
        where Satterthwaite's degrees of freedom do not: benchmarks/coverage.md."""
        parts = np.array([self.between.units, self.rows])
        df = np.array([self.between.df, max(self.num_rows - 1, 1)])
        return -float(parts @ special.stdtrit(df, tail)) / self.total

    def p_value(self, value: float) -> float:
        """Of the hypothesis that the true value is 0: 1 minus the confidence of the interval that
        ends there."""
        distance = abs(value) / self.total**0.5
        if self._quantile(SMALLEST_P / 2) < distance:
            return 0.0
        low, high = np.log(SMALLEST_P), 0.0
        for _ in range(50):
            middle = (low + high) / 2
            if self._quantile(np.exp(middle) / 2) > distance:
                low = middle
            else:
                high = middle
        return float(np.exp(high))

    def power(self, value: float, confidence: float) -> float:
        """The share of studies that would find an effect of this size: from the noncentral t
        distribution (Cohen 1988, chapter 2), with Satterthwaite's degrees of freedom."""
        parts = self.between.units**2 / self.between.df + self.rows**2 / max(self.num_rows - 1, 1)
        limit = self._quantile((1 - confidence) / 2)
        df, shift = self.total**2 / parts, abs(value) / self.total**0.5
        # NaN is what the function gives for a probability too small for it.
        below, above = np.nan_to_num(special.nctdtr(df, shift, [-limit, limit]))
        return float(1 - above + below)

    def with_units(self, times: float) -> "Variance":
        """With ``times`` as many units."""
        now = self.between
        number = times * now.num_units
        between = replace(
            now,
            units=now.units / times,
            df=now.df * (number - 1) / (now.num_units - 1),
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
