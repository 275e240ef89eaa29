"""Whether each cell's trials were fitted long enough."""

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from stages.evaluation.records import ScoredTrial
from stages.findings.cells import Cell
from stages.findings.facts import Difference

MAJORITY = 0.5
UNFITTED, MUCH = 0.1, 10.0  # a mean training loss in nats; a ratio of two such losses


class Fault(NamedTuple):
    """A reason to doubt that a trial was fitted well, given by a column of trials.csv."""

    name: str
    column: str
    value: int  # of the column, in trials with the fault
    share: float  # a cell has the fault if a larger share of its trials have it


FAULTS = (
    Fault("still improving", "still_improving", 1, MAJORITY),
    Fault("chosen in the warm-up", "chosen_in_warmup", 1, MAJORITY),
    Fault("no minimum found", "converged", 0, 0.0),
)


def faults(cell: Cell) -> dict[Fault, int]:
    """Returns the faults that enough of the cell's trials have, with the number of these trials."""
    numbers = {
        fault: sum(getattr(trial, fault.column) == fault.value for trial in cell.trials)
        for fault in FAULTS
    }
    return {fault: n for fault, n in numbers.items() if n > fault.share * len(cell.trials)}


def differences(a: Cell, b: Cell) -> list[Difference]:
    """Returns "not converged" if a side has a fault, and "fitted unequally" if a side was fitted to
    its labels much less than the other.

    A side's own curve does not show that it is unfitted: before a model has also what to learn,
    its training loss may be as flat as at the end. Only the other side shows that a lower loss is
    possible. The losses are compared only if both sides have the same method and train in epochs: a
    probe has no epochs, and methods differ in how well they can fit.
    """
    also = []
    names = [", ".join(fault.name for fault in faults(side)) for side in (a, b)]
    if any(names):
        also.append(Difference("not converged", *names))
    losses = [training_loss([t for t in cell.trials if t.num_epochs]) for cell in (a, b)]
    known = [loss for loss in losses if loss is not None]
    unequal = len(known) == 2 and max(known) >= max(UNFITTED, MUCH * min(known))
    if a.method == b.method and unequal:
        also.append(Difference("fitted unequally", *losses))
    return also


def training_loss(trials: Sequence[ScoredTrial]) -> float | None:
    """Returns the mean training loss at the end of training, or None if no trial has one."""
    losses = [trial.last_train_loss for trial in trials if trial.last_train_loss is not None]
    return fmean(losses) if losses else None


def share_at_edge(trials: Sequence[ScoredTrial]) -> float | None:
    """Returns, of the trials that tried several learning rates or values of C, the share that kept
    the smallest or the largest; None if no trial tried several."""
    edges = [trial.at_edge for trial in trials if trial.at_edge is not None]
    return fmean(edges) if edges else None
