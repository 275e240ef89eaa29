"""The variance of a mean score and of a difference, from three sources of chance.

A trial's score varies with the pretraining seed, with the fine-tuning seed (order of the data, new
weights, labels drawn) and with the test rows. Seeds and rows are crossed: every trial predicts
every row. So the variance of a mean is the variance between units of seeds, plus the variance
between rows, minus the variance of their interaction, which both contain (Cameron, Gelbach and
Miller 2011, equation 2.4). Three seeds give a poor estimate of a variance, so it is shrunk towards
the variance of other cells (``moderation.py``).

If each fine-tuning seed draws the splits anew, draws take the place of test rows: every pretraining
seed is fine-tuned and tested on every draw. Draws overlap, so the variance of a mean of J draws is
(1 / J + test rows per train row) times the variance between draws (Nadeau and Bengio 2003, section
3.2).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy import special

Key = tuple[int, int]  # pretraining seed, fine-tuning seed
Checkpoints = Literal["pretrained here", "published", "none"]

NO_SPREAD = 1e-12  # a smaller spread is only the rounding of a difference of two scores


@dataclass(frozen=True)
class Prior:
    """The variance between units that is expected from other cells, and the degrees of freedom that
    it counts for (Smyth 2004). For a paired difference it is the variance of the differences."""

    variance: float
    df: float


@dataclass(frozen=True)
class Sample:
    """The trials of a cell, or the differences of paired trials.

    The variance of the mean is estimated between units. A unit is a pretraining seed with all its
    fine-tuning seeds or, if the sample has only one pretraining seed, a trial. If ``checkpoints``
    is "pretrained here", the trials of a pretraining seed share a checkpoint; if "published", all
    trials share one; if "none" (from scratch), each trial has its own weights.
    """

    keys: tuple[Key, ...]
    values: Float[np.ndarray, " trials"]
    rows: Float[np.ndarray, "trials n"]  # scores of test rows
    checkpoints: Checkpoints
    # Test rows per train row if each fine-tuning seed draws the splits (``of_draws``), else None.
    overlap: float | None = None

    @classmethod
    def of_draws(
        cls,
        keys: tuple[Key, ...],
        values: Float[np.ndarray, " trials"],
        checkpoints: Checkpoints,
        overlap: float,
    ) -> "Sample":
        """Returns the sample of trials whose fine-tuning seeds draw the splits. Columns of ``rows``
        are draws: a trial's row is 0 except in the column of its own draw, which has its value
        times the number of draws. So the mean of the row is the trial's value."""
        draws = sorted({seed for _, seed in keys})
        is_of_draw = np.array([[seed == draw for draw in draws] for _, seed in keys])
        return cls(keys, values, len(draws) * values[:, None] * is_of_draw, checkpoints, overlap)

    @property
    def pretrained(self) -> bool:
        return self.checkpoints == "pretrained here"

    @cached_property
    def num_checkpoints(self) -> int:
        return len({pretrain_seed for pretrain_seed, _ in self.keys})

    @property
    def is_fixed(self) -> bool:
        """Whether the sample has a single checkpoint that was pretrained here, so that the variance
        between pretraining seeds is unknown."""
        return self.pretrained and self.num_checkpoints == 1

    @cached_property
    def _trials_of_seeds(self) -> list[list[int]]:
        seeds: dict[int, list[int]] = {}
        for trial, (pretrain_seed, _) in enumerate(self.keys):
            seeds.setdefault(pretrain_seed, []).append(trial)
        return [*seeds.values()]

    @cached_property
    def _trials_of_units(self) -> list[list[int]]:
        has_one = self.num_checkpoints == 1 and self.overlap is None
        return [[i] for i in range(len(self.keys))] if has_one else self._trials_of_seeds

    @cached_property
    def units(self) -> list[tuple[Key, ...]]:
        """The keys of each unit's trials. Equal units have the same draws of labels."""
        return [tuple(self.keys[i] for i in unit) for unit in self._trials_of_units]

    @property
    def num_units(self) -> int:
        return len(self._trials_of_units)

    @cached_property
    def unit_values(self) -> Float[np.ndarray, " units"]:
        return self._unit_means(self.values)

    @cached_property
    def unit_rows(self) -> Float[np.ndarray, "units n"]:
        return self._unit_means(self.rows)

    def _unit_means(self, numbers: np.ndarray) -> np.ndarray:
        if self.num_units == len(self.keys):
            return numbers.astype(float)
        units = self._trials_of_units
        return np.array([numbers[unit].mean(axis=0, dtype=float) for unit in units])

    @cached_property
    def mean(self) -> float:
        return float(self.unit_values.mean())

    @cached_property
    def row_means(self) -> Float[np.ndarray, " n"]:
        return self.unit_rows.mean(axis=0)

    def repeated(self) -> "Sample":
        """Returns a sample that has the only trial twice: for a trial that depends on no seed, so
        that its score varies only with the test rows."""
        seed, again = self.keys[0]
        keys = ((seed, again), (seed, again + 1))
        values, rows = np.repeat(self.values, 2), np.repeat(self.rows, 2, axis=0)
        return replace(self, keys=keys, values=values, rows=rows)

    def minus(self, other: "Sample") -> "Sample":
        """Returns the sample of the differences of trials with the same key. ``other`` must have
        the same keys."""
        places = {key: place for place, key in enumerate(other.keys)}
        order = [places[key] for key in self.keys]
        values, rows = self.values - other.values[order], self.rows - other.rows[order]
        checkpoints = other.checkpoints if other.pretrained else self.checkpoints
        return replace(self, values=values, rows=rows, checkpoints=checkpoints)

    def between(self, *, within_checkpoints: bool = False) -> "Between | None":
        """Returns the variance of the mean between units or, with ``within_checkpoints``, between
        the trials of each pretraining seed. It is None for fewer than two units or trials. Draws of
        the splits count as test rows, so the variance between draws is not included."""
        if self.overlap is not None and (within_checkpoints or self.num_units < 2):
            return NO_UNITS
        if within_checkpoints and self.pretrained:
            return self._within()
        if self.num_units < 2:
            return None
        return _between(self.unit_values, self.unit_rows)

    def _within(self) -> "Between | None":
        """Returns the variance of the mean between the trials of each pretraining seed."""
        seeds = self._trials_of_seeds
        if min(map(len, seeds)) < 2:
            return None
        total = added([_between(self.values[trials], self.rows[trials]) for trials in seeds])
        weight = 1 / len(seeds) ** 2  # for the variance of a mean over seeds
        units, interaction = weight * total.units, weight * total.interaction
        return Between(units, total.df, interaction, total.num_units)


@dataclass(frozen=True)
class Between:
    """The part of a mean's variance that is due to units of seeds, with its degrees of freedom."""

    units: float  # the variance
    df: float
    interaction: float  # part of the variance that more test rows reduce
    num_units: float  # of a difference: the mean over its samples
    prior_df: float = 0.0  # part of ``df`` that comes from other cells

    def moderated(self, prior: Prior | None) -> "Between":
        """Returns the variance shrunk towards the prior (Smyth 2004, eq. 3): the mean of the
        two, weighted with their degrees of freedom, which are added. Both variances contain the
        interaction with test rows, so neither may be smaller than the interaction."""
        if prior is None or prior.df <= 0 or self.units < NO_SPREAD**2:
            return self  # without spread between seeds there is no variance to shrink
        elsewhere = max(prior.variance / self.num_units, self.interaction)
        df = prior.df + self.df
        units = (prior.df * elsewhere + self.df * self.units) / df
        return replace(self, units=units, df=df, prior_df=prior.df)


# If seeds draw the splits and all trials share a checkpoint, nothing varies but the draws.
NO_UNITS = Between(0.0, 1.0, 0.0, 1)


def _between(values: Float[np.ndarray, " units"], rows: Float[np.ndarray, "units n"]) -> Between:
    """Returns the variance between units, which is at least the interaction that it contains."""
    number, num_rows = rows.shape
    centred = rows - rows.mean(axis=1, keepdims=True, dtype=float)
    centred -= centred.mean(axis=0)
    df = (number - 1) * max(num_rows - 1, 1)
    interaction = float(np.vdot(centred, centred)) / df / (number * num_rows)
    units = max(float(np.var(values, ddof=1)) / number, interaction)
    return Between(units, number - 1, interaction, number)


def added(parts: Sequence[Between]) -> Between:
    """Returns the variance of a sum of independent means, with the degrees of freedom of Welch
    (1947) and Satterthwaite (1946)."""
    units = sum(part.units for part in parts)
    squares = sum(part.units**2 / part.df for part in parts)
    df = units**2 / squares if squares else min(part.df for part in parts)
    share = sum(part.prior_df / part.df for part in parts) / len(parts)
    return Between(
        units,
        df,
        sum(part.interaction for part in parts),
        float(np.mean([part.num_units for part in parts])),
        prior_df=share * df,
    )


@dataclass(frozen=True)
class Variance:
    """The variance of a mean or of a difference of means."""

    between: Between  # between units of seeds
    rows: float  # the variance of the rows alone, without the interaction
    num_rows: float
    of_draws: bool = False  # whether rows are, or include, draws of the splits

    @property
    def total(self) -> float:
        return self.between.units + self.rows

    @property
    def df(self) -> float:
        """Satterthwaite's degrees of freedom of the total."""
        parts = self.between.units**2 / self.between.df + self.rows**2 / max(self.num_rows - 1, 1)
        return self.total**2 / parts

    def half_width(self, confidence: float) -> float:
        """Returns half the width of the confidence interval."""
        return -float(special.stdtrit(self.df, (1 - confidence) / 2)) * self.total**0.5

    def p_value(self, value: float) -> float:
        """Returns the p-value of the hypothesis that the true value is 0: 1 minus the confidence at
        which the interval would end at 0."""
        return 2 * float(special.stdtr(self.df, -abs(value) / self.total**0.5))
