"""Comparisons that a reader may expect and the study does not make, each with its reason."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from stages.findings.axes import axis_between, left_out
from stages.findings.axis_levels import levels_of
from stages.findings.contrasts import Contrast
from stages.findings.groups import Used
from stages.findings.scores import Scores


@dataclass(frozen=True)
class NotCompared:
    """Two groups that are not compared, or one group that is compared with no other (then ``b`` and
    ``axis`` are empty)."""

    axis: str
    a: str
    b: str
    level_a: str
    level_b: str
    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    reason: str


def not_compared(scores: Scores, contrasts: Sequence[Contrast]) -> list[NotCompared]:
    """Returns the comparisons that are not made, in the order of params.yaml. Tasks and methods
    with the same reason share an entry."""
    places: dict[tuple[str, ...], list[tuple[str, str]]] = defaultdict(list)
    trials = [trial for cell in scores.cells for trial in cell.trials]
    for task, method in product(scores.tasks, scores.methods):
        used = Used.by_group(scores.groups, trials, task=task, method=method)
        for omitted in left_out(scores.groups, used):
            levels = levels_of(omitted.axis, omitted.a, omitted.b, used)
            key = (omitted.axis, omitted.a.name, omitted.b.name, *levels, omitted.reason)
            places[key].append((task, method))
    pairs = [
        NotCompared(
            *key[:5],
            tasks=tuple(dict.fromkeys(task for task, _ in where)),
            methods=tuple(dict.fromkeys(method for _, method in where)),
            reason=key[5],
        )
        for key, where in places.items()
    ]
    return [*pairs, *_alone(scores, contrasts)]


def _alone(scores: Scores, contrasts: Sequence[Contrast]) -> list[NotCompared]:
    """Returns an entry for each group that is in no contrast and differs from no other group in
    exactly one axis."""
    compared = {
        side.group for contrast in contrasts if contrast.is_between_runs for side in contrast.sides
    }
    return [
        NotCompared(
            axis="",
            a=group.name,
            b="",
            level_a="",
            level_b="",
            tasks=tuple(scores.tasks),
            methods=tuple(scores.methods),
            reason="no other run differs from it in exactly one axis",
        )
        for group in scores.groups
        if len(scores.groups) > 1
        and group.name not in compared
        and not any(axis_between(group, other) for other in scores.groups if other is not group)
    ]
