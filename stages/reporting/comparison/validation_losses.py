"""Validation losses of pretraining against tokens seen and FLOPs, both counted."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

from stages.core.params import NONE
from stages.reporting.comparison.groups import Group
from stages.reporting.comparison.results import Results

Amount = Literal["tokens", "flops"]


@dataclass(frozen=True)
class LossPoint:
    """A validation of a run; ``amount`` includes what its parents and teachers took. Of several
    learning rates it is that of the kept one."""

    group: Group
    run: str
    amount: int
    loss: float


def comparable(results: Results) -> dict[str, list[Group]]:
    """The pretrained groups, by what their validation loss depends on: objective, validation text
    and its tokens."""
    found: dict[str, list[Group]] = defaultdict(list)
    for group in results.groups:
        if any(results.progress[run].history for run in group.runs):
            entry = group.entry
            rows = f"{entry.tokenizer}, rows of {entry.training.max_tokens}"
            found[f"{entry.objective['name']} on {entry.corpus} ({rows})"].append(group)
    return found


def loss_points(results: Results, group: Group, amount: Amount) -> list[LossPoint]:
    return [
        LossPoint(
            group,
            run,
            _of_parents(results, run, amount) + getattr(step, amount),
            step.validation_loss,
        )
        for run in group.runs
        for step in results.progress[run].history
        if step.validation_loss is not None
    ]


def _of_parents(results: Results, run: str, amount: Amount) -> int:
    """What others did is unknown: the curve of a public checkpoint begins with its further
    pretraining."""
    parent = results.params.pretrain[run].parent
    if parent == NONE:
        return 0
    history = results.progress[parent].history
    own = getattr(history[-1], amount) if history else 0
    return own + _of_parents(results, parent, amount)
