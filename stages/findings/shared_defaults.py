"""How much the settings that all runs share decide.

Each trial chooses on validation among the values that it tries of some settings: pooling, initial
weights, ... Here one value of one setting is forced on all trials instead, and every mean and every
difference of means is computed again. A trial that has not tried the value (a decoder never reads
the first state), or whose training diverged with it, keeps what validation chose.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stages.core.keys import TrialKey
from stages.evaluation.metrics import merit
from stages.evaluation.records import ScoredTry
from stages.findings.cells import Cell


@dataclass(frozen=True)
class Forced:
    """A value that is forced on all trials that have tried it."""

    setting: str  # "pooling"
    value: str  # "mean"


@dataclass(frozen=True, eq=False)
class Change:
    """The mean score of a cell with a forced value, beside the one that validation chose."""

    forced: Forced
    cell: Cell
    mean: float

    @property
    def size(self) -> float:
        """The forced mean minus the mean as chosen, in units of the metric (0.01 is a point)."""
        return self.mean - self.cell.mean.value


@dataclass(frozen=True, eq=False)
class ForcedEffect:
    """The mean of ``a`` minus that of ``b`` with a forced value, beside that as chosen."""

    forced: Forced
    a: Cell
    b: Cell
    chosen: float
    value: float

    @property
    def is_reversed(self) -> bool:
        """Whether the forced value changes which side is ahead."""
        return self.chosen * self.value < 0


def forced_values(tries: Iterable[ScoredTry]) -> list[Forced]:
    """Each value of each setting of which a trial has tried several, in the order of ``tries``."""
    forced = dict[Forced, None]()
    for members in _by_trial(tries).values():
        for setting in dict.fromkeys(name for each in members for name in each.settings):
            values = dict.fromkeys(each.settings[setting] for each in members)
            if len(values) > 1:
                forced |= dict.fromkeys(Forced(setting, value) for value in values)
    return [*forced]


def not_varied(tries: Iterable[ScoredTry]) -> list[str]:
    """The settings of which no trial has tried several values though it could have."""
    listed = [*tries]
    varied = {forced.setting for forced in forced_values(listed)}
    fixed = dict.fromkeys(name for each in listed for name in each.fixed_settings)
    return [name for name in fixed if name not in varied]


def changes(cells: Iterable[Cell], tries: Iterable[ScoredTry]) -> list[Change]:
    """The mean of each cell with each forced value; only cells that have a trial which has tried
    it."""
    members = _by_trial(tries)
    every = [each for some in members.values() for each in some]
    return [
        Change(forced, cell, mean)
        for forced in forced_values(every)
        for cell in cells
        if (mean := _forced_mean(cell, members, forced)) is not None
    ]


def largest_changes(found: Iterable[Change]) -> dict[str, Change]:
    """The largest change of a cell for each setting, up or down."""
    largest = dict[str, Change]()
    for change in found:
        known = largest.get(change.forced.setting)
        if known is None or abs(change.size) > abs(known.size):
            largest[change.forced.setting] = change
    return largest


def forced_effects(
    pairs: Iterable[tuple[Cell, Cell]], found: Iterable[Change]
) -> list[ForcedEffect]:
    """The difference of each pair of cells under each forced value; only where a side has a trial
    which has tried it. ``found`` are the ``changes`` of the cells."""
    means = dict[Forced, dict[Cell, float]]()
    for change in found:
        means.setdefault(change.forced, {})[change.cell] = change.mean
    return [
        ForcedEffect(
            forced,
            a,
            b,
            chosen=a.mean.value - b.mean.value,
            value=of_cell.get(a, a.mean.value) - of_cell.get(b, b.mean.value),
        )
        for a, b in pairs
        for forced, of_cell in means.items()
        if a in of_cell or b in of_cell
    ]


def _by_trial(tries: Iterable[ScoredTry]) -> dict[TrialKey, list[ScoredTry]]:
    by_trial = dict[TrialKey, list[ScoredTry]]()
    for tried in tries:
        by_trial.setdefault(tried.key, []).append(tried)
    return by_trial


def _forced_mean(
    cell: Cell, members: Mapping[TrialKey, Sequence[ScoredTry]], forced: Forced
) -> float | None:
    """The mean of a cell with a forced value, or None if no trial of the cell has tried several
    values of the setting, this one among them."""
    values, has_any = list[float](), False
    for trial in cell.trials:
        own = members.get(trial.key, ())
        with_value = [each for each in own if each.settings.get(forced.setting) == forced.value]
        best = _best(with_value, cell.metric) if len(with_value) < len(own) else None
        has_any = has_any or best is not None
        values.append(trial.value if best is None else best)
    return replace(cell.sample, values=np.array(values)).mean if has_any else None


def _best(tries: Iterable[ScoredTry], metric: str) -> float | None:
    """The test score of the one that is best on validation, of equal ones of the first."""
    merits = [
        (merit(metric, each.validation_metric), -each.validation_loss, each.value)
        for each in tries
        if each.value is not None
        and each.validation_metric is not None
        and each.validation_loss is not None
    ]
    return max(merits, key=lambda each: each[:2])[2] if merits else None
