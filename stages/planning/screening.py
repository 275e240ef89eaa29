"""Fine-tunings of a study that screens: which runs it keeps is known only after the estimates."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from stages.core.params import Params, Run
from stages.evaluation.screening import candidates
from stages.planning.finetuning_costs import Finetuning


@dataclass(frozen=True)
class Screened:
    """The fine-tunings of the costliest runs that the screen may keep, and of the cheapest."""

    most: list[Finetuning]
    least: list[Finetuning]


def screened(
    params: Params, runs: dict[str, Run], finetune: Sequence[Finetuning]
) -> Screened | None:
    """By their times or, where one is not known, by their operations; None without a screen.
    ``runs`` are those of ``planned_runs``."""
    screen = params.finetune.screen
    if screen is None:
        return None
    groups, most, least = candidates(runs), list[Finetuning](), list[Finetuning]()
    for task in params.tasks:
        of_task = [cost for cost in finetune if cost.task == task]
        ranked = sorted(groups, key=lambda group: _work(of_task, group), reverse=True)
        ranked = [group for group in ranked if any(cost.run in group for cost in of_task)]
        most += _without(of_task, ranked[screen.keep :])
        least += _without(of_task, ranked[: -screen.keep])
    return Screened(most, least)


def _work(costs: Iterable[Finetuning], group: Sequence[str]) -> tuple[float, float]:
    members = [cost for cost in costs if cost.run in group and cost.pending]
    seconds = [inf if cost.seconds is None else cost.seconds for cost in members]
    flops = [
        inf if cost.flops is None else cost.flops + (cost.prediction_flops or 0) for cost in members
    ]
    return sum(seconds), sum(flops)


def _without(costs: Iterable[Finetuning], groups: Iterable[Sequence[str]]) -> Iterator[Finetuning]:
    left_out = {run for group in groups for run in group}
    return (cost for cost in costs if cost.run not in left_out)
