"""Screening: only the runs with the highest estimates on a task are fine-tuned.

Estimates are computed from labelled rows of train, so the choice does not use the test set.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stages.core.params import Run, Screen
from stages.evaluation.estimates import EstimateRecord
from stages.evaluation.repetitions import repetitions

LAYERS = "last"  # layer of the estimates that are used, because heads read it


@dataclass(frozen=True)
class ScreenedOut:
    """Runs that differ only in their seeds and are not fine-tuned on a task."""

    runs: tuple[str, ...]
    by: str  # one of ESTIMATES
    value: float  # the mean of the runs' estimates
    rank: int  # among the pretrained candidates, from 1


def candidates(pretrain: Mapping[str, Run]) -> list[tuple[str, ...]]:
    """Returns the groups of runs that may be screened out. Runs from scratch never are, because
    the pretrained runs are compared with them."""
    return [runs for runs in repetitions(pretrain) if not pretrain[runs[0]].from_scratch]


def screened_out(
    screen: Screen | None, pretrain: Mapping[str, Run], records: Sequence[EstimateRecord]
) -> list[ScreenedOut]:
    """Returns all but the ``keep`` best candidates on a task with these estimates, best first.

    Runs that differ only in their seeds are ranked by their mean estimate and are kept or screened
    out together. Ties go to the first in params.yaml. A run without a defined estimate is kept.
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
    ranked.sort(key=lambda candidate: -candidate[0])
    return [
        ScreenedOut(runs, screen.by, value, rank)
        for rank, (value, runs) in enumerate(ranked, start=1)
        if rank > screen.keep
    ]
