"""Which runs are fine-tuned where an estimate screens them first: those with the highest ones.

Estimates are computed from labelled rows of train, so the choice does not see the test set.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stages.core.params import Run, Screen
from stages.evaluation.estimates import EstimateRecord
from stages.evaluation.repetitions import repetitions

LAYERS = "last"  # of the estimates that screen: what heads read


@dataclass(frozen=True)
class ScreenedOut:
    """Runs that are not fine-tuned on a task: they differ in their seeds alone."""

    runs: tuple[str, ...]
    by: str  # one of ESTIMATES
    value: float  # the mean of their estimates
    rank: int  # among the pretrained candidates, from 1


def candidates(pretrain: Mapping[str, Run]) -> list[tuple[str, ...]]:
    """Those that an estimate may screen out. From scratch there is nothing to choose: what the
    pretrained runs are compared with is always kept."""
    return [runs for runs in repetitions(pretrain) if not pretrain[runs[0]].from_scratch]


def screened_out(
    screen: Screen | None, pretrain: Mapping[str, Run], records: Sequence[EstimateRecord]
) -> list[ScreenedOut]:
    """Of a task with these estimates, all but the ``keep`` best candidates, the best first.

    Runs that differ in their seeds alone are ranked by their mean and stay or go together. Of ties
    the first in params.yaml is kept, and so is each run whose estimate is not defined.
    """
    if screen is None:
        return []
    values = {
        record.run: record.value
        for record in records
        if (record.estimate, record.layers) == (screen.by, LAYERS)
        and record.value is not None
        and math.isfinite(record.value)
    }
    ranked = [
        (sum(values[run] for run in runs) / len(runs), runs)
        for runs in candidates(pretrain)
        if all(run in values for run in runs)
    ]
    ranked.sort(key=lambda each: -each[0])
    return [
        ScreenedOut(runs, screen.by, value, rank)
        for rank, (value, runs) in enumerate(ranked, start=1)
        if rank > screen.keep
    ]
