"""How much the results depend on the settings that all runs share.

Each trial tries several values of some settings (pooling, initial weights, ...) and keeps the best
on validation. Here one value of one setting is forced on all trials instead, and every mean and
every difference of means is computed again. A trial that has not tried the value (a decoder never
reads the first state), or whose training diverged with it, keeps the value that validation chose.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from stages.core.keys import TrialKey
from stages.evaluation.metrics import merit
from stages.evaluation.records import ScoredTry
from stages.findings.cells import Cell

Tries = Mapping[TrialKey, Sequence[ScoredTry]]


class Forced(NamedTuple):
    """A value that is forced on all trials that have tried it."""

    setting: str  # such as "pooling"
    value: str  # such as "mean"


@dataclass(frozen=True, eq=False)
class Change:
    """A cell's mean score under a forced value, and its change from the cell's own mean."""

    forced: Forced
    cell: Cell
    mean: float

    @property
    def size(self) -> float:
        """The forced mean minus the cell's mean, in units of the metric (0.01 is a point)."""
        return self.mean - self.cell.mean.value


@dataclass(frozen=True, eq=False)
class ForcedEffect:
    """The difference of two cells' means with a forced value, and with the values that validation
    chose."""

    forced: Forced
    chosen: float  # the difference with the values that validation chose
    value: float  # the difference with the forced value

    @property
    def is_reversed(self) -> bool:
        """Whether the forced value changes which side is ahead."""
        return self.chosen * self.value < 0


def forced_values(tries: Iterable[ScoredTry]) -> list[Forced]:
    """Returns the values of each setting that a trial has varied, in the order of ``tries``."""
    forced = dict[Forced, None]()
    for members in _by_trial(tries).values():
        for setting in dict.fromkeys(name for each in members for name in each.settings):
            values = dict.fromkeys(each.settings[setting] for each in members)
            if len(values) > 1:
                forced |= dict.fromkeys(Forced(setting, value) for value in values)
    return [*forced]


def not_varied(tries: Sequence[ScoredTry]) -> list[str]:
    """Returns the settings for which trials could have tried several values, but none did."""
    varied = {forced.setting for forced in forced_values(tries)}
    fixed = dict.fromkeys(name for each in tries for name in each.fixed_settings)
    return [name for name in fixed if name not in varied]


def changes(cells: Iterable[Cell], tries: Sequence[ScoredTry]) -> list[Change]:
    """Returns the change of each cell under each forced value that one of its trials has tried."""
    by_trial = _by_trial(tries)
    every = [each for some in by_trial.values() for each in some]
    return [
        Change(forced, cell, mean)
        for forced in forced_values(every)
        for cell in cells
        if (mean := _forced_mean(cell, by_trial, forced)) is not None
    ]


def largest_changes(found: Iterable[Change]) -> dict[str, Change]:
    """Returns, for each setting, the change of a cell that is largest in absolute value."""
    largest = dict[str, Change]()
    for change in found:
        so_far = largest.get(change.forced.setting, change)
        largest[change.forced.setting] = max(so_far, change, key=lambda each: abs(each.size))
    return largest


def forced_effects(a: Cell, b: Cell, found: Iterable[Change]) -> list[ForcedEffect]:
    """Returns the difference of two cells under each forced value that a trial of one side has
    tried. ``found`` are the ``changes`` of the cells."""
    means: dict[Forced, dict[Cell, float]] = defaultdict(dict)
    for change in found:
        if change.cell in (a, b):
            means[change.forced][change.cell] = change.mean
    chosen = a.mean.value - b.mean.value
    return [
        ForcedEffect(forced, chosen, of.get(a, a.mean.value) - of.get(b, b.mean.value))
        for forced, of in means.items()
    ]


def _by_trial(tries: Iterable[ScoredTry]) -> Tries:
    by_trial: dict[TrialKey, list[ScoredTry]] = defaultdict(list)
    for tried in tries:
        by_trial[tried.key].append(tried)
    return by_trial


def _forced_mean(cell: Cell, by_trial: Tries, forced: Forced) -> float | None:
    """Returns the mean of a cell with a forced value, or None if no trial of the cell has tried
    both this value of the setting and another one."""
    values, has_any = list[float](), False
    for trial in cell.trials:
        own = by_trial.get(trial.key, ())
        with_value = [each for each in own if each.settings.get(forced.setting) == forced.value]
        best = _best(with_value, cell.metric) if len(with_value) < len(own) else None
        has_any = has_any or best is not None
        values.append(trial.value if best is None else best)
    return replace(cell.sample, values=np.array(values)).mean if has_any else None


def _best(tries: Iterable[ScoredTry], metric: str) -> float | None:
    """Returns the test score of the try that is best on validation (the first of equal tries), or
    None if no try has scores."""
    merits = [
        (merit(metric, each.validation_metric), -each.validation_loss, each.value)
        for each in tries
        if each.value is not None
        and each.validation_metric is not None
        and each.validation_loss is not None
    ]
    return max(merits, key=lambda each: each[:2])[2] if merits else None
