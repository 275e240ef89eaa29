"""What exceeds the limits of size and speed that a study sets to its answers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from stages.core.params import AnswerLimits
from stages.evaluation.records import CLASSICAL
from stages.findings.cells import Cell
from stages.findings.costs import Costs
from stages.findings.scores import Scores


@dataclass(frozen=True)
class Excess:
    """A value of a cell that is outside a limit."""

    limit: str  # the name of the setting in ``answer:``
    allowed: float
    measured: float | None  # in the unit of the limit; None is unknown


Excesses = Mapping[Cell, Sequence[Excess]]


def excesses(scores: Scores, costs: Costs, limits: AnswerLimits) -> Excesses:
    """Returns the cells outside the limits, each with the limits that it exceeds."""
    stated = limits.model_dump(exclude_none=True)
    by_cell = {cell: [*_excesses(cell, costs, stated)] for cell in scores.cells}
    return {cell: of_cell for cell, of_cell in by_cell.items() if of_cell}


def _excesses(cell: Cell, costs: Costs, stated: Mapping[str, float]) -> Iterator[Excess]:
    if cell.method == CLASSICAL and not cell.is_external:
        return
    records = costs.of_trials([cell])
    sizes = [trial.weights_bytes / 1e6 for trial in cell.trials if trial.weights_bytes]
    latencies = [1000 * record.latency_s for record in records if record.latency_s]
    speeds = [record.texts_per_s for record in records if record.texts_per_s]
    measured = {
        "max_weights_mb": max(sizes, default=None),
        "max_latency_ms": fmean(latencies) if latencies else None,
        "min_texts_per_s": fmean(speeds) if speeds else None,
    }
    for limit, allowed in stated.items():
        value, sign = measured[limit], -1 if limit.startswith("min_") else 1
        if value is None or sign * value > sign * allowed:
            yield Excess(limit, allowed, value)
