"""Whether each cell's trials were fitted long enough, and whether the values that validation chose
lie inside the range that was tried: warnings, a table and caveats."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from stages.evaluation.records import ScoredTrial
from stages.reporting.comparison.cells import Cell
from stages.reporting.number_format import DASH, formatted

MAJORITY = 0.5
UNFITTED, MUCH = 0.1, 10.0  # a mean loss of training rows in nats, and how many times another's


@dataclass(frozen=True)
class Fault:
    """What speaks against the fit of a trial, by a column of trials.csv."""

    words: str
    column: str
    value: int  # of the column, where the fault is
    share: float  # of the cell's trials: at more than that it is a warning


FAULTS = (
    Fault("still improving", "still_improving", 1, MAJORITY),
    Fault("chosen in the warm-up", "chosen_in_warmup", 1, MAJORITY),
    Fault("no minimum found", "converged", 0, 0.0),
)


def warnings(cell: Cell) -> list[str]:
    """Why the cell's trials may have been fitted for too short a time: ``still improving (best
    epoch last in 3 of 5)``. Empty if nothing speaks for it."""
    found = [*faults(cell)]
    last = sum(trial.best_is_last for trial in cell.trials)
    if found and last:
        found.append(f"best epoch last in {last} of {len(cell.trials)}")
    return found


def faults(cell: Cell) -> Iterator[str]:
    """``still improving in 3 of 5``, of each fault that enough of the cell's trials have."""
    for fault in FAULTS:
        number = sum(getattr(trial, fault.column) == fault.value for trial in cell.trials)
        if number > fault.share * len(cell.trials):
            yield f"{fault.words} in {number} of {len(cell.trials)}"


def confounds(*sides: Cell) -> list[str]:
    """The warnings of the sides of a contrast, each as ``not converged: encoder_scratch (...)``,
    and whether one side was fitted to its labels much less than the other."""
    found = [
        f"not converged: {cell.group} ({', '.join(warned)})"
        for cell in dict.fromkeys(sides)
        if (warned := warnings(cell))
    ]
    return [*found, *_less_fitted(*dict.fromkeys(sides))]


def _less_fitted(*sides: Cell) -> Iterator[str]:
    """A curve does not show it: on a plateau before a model has found what to learn, its training
    loss is as flat as at the end. The other side shows that lower is possible. Of one method that
    trains in epochs: a probe is solved, and methods differ in what they can fit."""
    if len({cell.method for cell in sides}) > 1:
        return
    losses = [_training_loss([t for t in cell.trials if t.num_epochs]) for cell in sides]
    known = [loss for loss in losses if loss is not None]
    if len(known) < 2 or max(known) < UNFITTED or max(known) < MUCH * min(known):
        return
    amounts = " v. ".join(f"{loss:.2g}" for loss in known)
    yield f"fitted unequally: training loss at the end {amounts}"


def _training_loss(trials: Sequence[ScoredTrial]) -> float | None:
    """The mean at the end of training; None if nothing was trained in steps."""
    losses = [trial.last_train_loss for trial in trials if trial.last_train_loss is not None]
    return fmean(losses) if losses else None


def caveats(all_cells: Sequence[Cell]) -> Iterator[str]:
    """For the head of the report; nothing if every cell has converged."""
    warned = [(cell, words) for cell in all_cells if (words := warnings(cell))]
    if warned:
        listed = "; ".join(
            f"`{c.group}` on {c.task} with `{c.method}` and {c.label_budget} labels: "
            + ", ".join(words)
            for c, words in warned
        )
        yield (
            f"Not converged: {len(warned)} of {len(all_cells)} cells ({listed}). More epochs may "
            "change their scores; their contrasts are marked."
        )


def rows(all_cells: Sequence[Cell]) -> list[dict[str, str]]:
    """A row for each run or baseline, method and label budget: how long it was fitted, how many
    values of a setting were tried, and the share of its trials that chose one at an edge."""
    by_key: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in all_cells:
        by_key.setdefault((cell.group, cell.method, cell.label_budget), []).append(cell)
    return [
        {
            "run": group,
            "method": method,
            "labels": budget,
            **_fitted([trial for cell in found for trial in cell.trials]),
            **_chosen([trial for cell in found for trial in cell.trials]),
            "not converged": ", ".join(c.task for c in found if warnings(c)) or DASH,
        }
        for (group, method, budget), found in by_key.items()
    ]


def _fitted(trials: Sequence[ScoredTrial]) -> dict[str, str]:
    loss = _training_loss(trials)
    trained = [trial for trial in trials if trial.num_epochs]
    best, last = ([getattr(t, key) for t in trained] for key in ("best_epoch", "num_epochs"))
    return {
        "steps": f"{fmean(t.num_steps for t in trials):,.0f}" if loss is not None else DASH,
        "best epoch": f"{fmean(best):.1f} of {fmean(last):.1f}" if trained else DASH,
        "training loss": formatted(loss, ".3f"),
    }


def _chosen(trials: Sequence[ScoredTrial]) -> dict[str, str]:
    edges = [trial.at_edge for trial in trials if trial.at_edge is not None]
    return {
        "tried": str(max(trial.num_tries for trial in trials)),
        "at an edge of those tried": f"{fmean(edges):.0%}" if edges else DASH,
    }
