"""Whether each cell's trials were fitted long enough."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from stages.evaluation.records import ScoredTrial
from stages.findings.axes import Confound
from stages.findings.cells import Cell

MAJORITY = 0.5
UNFITTED, MUCH = 0.1, 10.0  # a mean loss of training rows in nats, and how many times another's
NOT_CONVERGED, FITTED_UNEQUALLY = "not converged", "fitted unequally"


@dataclass(frozen=True)
class Fault:
    """What speaks against the fit of a trial, by a column of trials.csv."""

    name: str
    column: str
    value: int  # of the column, where the fault is
    share: float  # of the cell's trials: at more than that it is a fault of the cell


FAULTS = (
    Fault("still improving", "still_improving", 1, MAJORITY),
    Fault("chosen in the warm-up", "chosen_in_warmup", 1, MAJORITY),
    Fault("no minimum found", "converged", 0, 0.0),
)


def faults(cell: Cell) -> dict[Fault, int]:
    """The faults that enough of the cell's trials have, with the number of these trials."""
    numbers = {
        fault: sum(getattr(trial, fault.column) == fault.value for trial in cell.trials)
        for fault in FAULTS
    }
    return {fault: n for fault, n in numbers.items() if n > fault.share * len(cell.trials)}


def unconverged(cells: Sequence[Cell]) -> list[Cell]:
    return [cell for cell in cells if faults(cell)]


def confounds(a: Cell, b: Cell) -> list[Confound]:
    """The sides of a contrast that have not converged, and whether one side was fitted to its
    labels much less than the other.

    A curve does not show the latter: on a plateau before a model has found what to learn, its
    training loss is as flat as at the end. The other side shows that lower is possible. Only sides
    with one method that trains in epochs are compared: a probe is solved, and methods differ in
    what they can fit.
    """
    sides = list(dict.fromkeys((a, b)))
    faults = [Confound(NOT_CONVERGED, (cell,)) for cell in unconverged(sides)]
    losses = [training_loss([t for t in cell.trials if t.num_epochs]) for cell in sides]
    known = [loss for loss in losses if loss is not None]
    unequal = len(known) == 2 and max(known) >= max(UNFITTED, MUCH * min(known))
    if a.method == b.method and unequal:
        faults.append(Confound(FITTED_UNEQUALLY, tuple(known)))
    return faults


def training_loss(trials: Sequence[ScoredTrial]) -> float | None:
    """The mean at the end of training, or None if nothing was trained in steps."""
    losses = [trial.last_train_loss for trial in trials if trial.last_train_loss is not None]
    return fmean(losses) if losses else None


def share_at_edge(trials: Sequence[ScoredTrial]) -> float | None:
    """The share of trials that kept the smallest or largest of several values of a setting, or None
    if no trial had several."""
    edges = [trial.at_edge for trial in trials if trial.at_edge is not None]
    return fmean(edges) if edges else None
