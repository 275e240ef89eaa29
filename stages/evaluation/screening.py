"""Screening: only the runs with the highest estimates on a task are fine-tuned.

Estimates are computed from labelled rows of train, so the choice does not use the test set.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stages.core.keys import RunKey
from stages.core.params import Run, Screen
from stages.evaluation.estimates import EstimateRecord

LAYERS = "last"  # the layer whose estimates are used: the one that heads read


@dataclass(frozen=True)
class ScreenedOut:
    """A run that is not fine-tuned on a task."""

    run: str
    by: str  # one of ESTIMATES
    value: float  # the mean of the estimates of its checkpoints
    rank: int  # among the ranked candidates, from 1 (the best)


def candidates(runs: Mapping[str, Run]) -> list[str]:
    """Returns the runs that may be screened out. Runs from scratch never are, because the
    pretrained runs are compared with them."""
    return [name for name, run in runs.items() if not run.from_scratch]


def screened_out(
    screen: Screen | None, runs: Mapping[str, Run], records: Sequence[EstimateRecord]
) -> list[ScreenedOut]:
    """Returns all but the ``screen.keep`` best candidates, by the estimates ``records`` of a task.

    The checkpoints of a run are ranked by their mean estimate and are kept or screened out
    together. Ties go to the first in params.yaml. A run is kept if one of its checkpoints has no
    defined estimate. The result is in order, best first.
    """
    if screen is None:
        return []
    values = {
        record.checkpoint: record.value
        for record in records
        if (record.estimate, record.layers) == (screen.by, LAYERS)
        and record.value is not None
        and math.isfinite(record.value)
    }
    ranked = list[tuple[float, str]]()
    for name in candidates(runs):
        checkpoints = [RunKey(name, seed) for seed in runs[name].seeds]
        if all(checkpoint in values for checkpoint in checkpoints):
            mean = sum(values[checkpoint] for checkpoint in checkpoints) / len(checkpoints)
            ranked.append((mean, name))
    ranked.sort(key=lambda candidate: -candidate[0])
    return [
        ScreenedOut(name, screen.by, value, rank)
        for rank, (value, name) in enumerate(ranked, start=1)
        if rank > screen.keep
    ]
