"""Validation losses of pretraining against tokens seen and FLOPs, both counted."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

from stages.evaluation.records import ScoredTrial
from stages.reporting.comparison.groups import Group
from stages.reporting.comparison.results import Results

Amount = Literal["tokens", "flops"]


@dataclass(frozen=True)
class LossPoint:
    """A validation of a run; ``amount`` includes what its parents and teachers took."""

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
    earlier = {t.run: _of_parents(t, amount) for t in results.trials}
    return [
        LossPoint(group, run, earlier[run] + getattr(step, amount), step.validation_loss)
        for run in group.runs
        for step in results.progress[run].history
        if step.validation_loss is not None
    ]


def _of_parents(trial: ScoredTrial, amount: Amount) -> int:
    """0 if unknown: the curve of a public checkpoint begins with its further pretraining."""
    lineage, own = (getattr(trial, f"{whose}_{amount}") for whose in ("lineage", "pretrain"))
    return 0 if lineage is None else lineage - (own or 0)
