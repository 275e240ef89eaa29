"""Comparisons that a reader may expect and the study does not make, each with its reason."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from stages.findings.axes import axis_between, left_out, levels_of
from stages.findings.contrasts import Contrast
from stages.findings.groups import Used
from stages.findings.scores import Scores


@dataclass(frozen=True, kw_only=True)
class NotCompared:
    """Two groups that are not compared, or one group that is compared with no other (then ``b`` and
    ``axis`` are empty)."""

    a: str
    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    reason: str
    axis: str = ""
    b: str = ""
    level_a: str = ""
    level_b: str = ""


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
            **dict(zip(("axis", "a", "b", "level_a", "level_b", "reason"), key, strict=True)),
            tasks=tuple(dict.fromkeys(task for task, _ in where)),
            methods=tuple(dict.fromkeys(method for _, method in where)),
        )
        for key, where in places.items()
    ]
    compared = {
        side.group for contrast in contrasts if contrast.is_between_runs for side in contrast.sides
    }
    alone = [
        NotCompared(
            a=group.name,
            tasks=tuple(scores.tasks),
            methods=tuple(scores.methods),
            reason="no other run differs from it in exactly one axis",
        )
        for group in scores.groups
        if len(scores.groups) > 1
        and group.name not in compared
        and not any(axis_between(group, other) for other in scores.groups if other is not group)
    ]
    return [*pairs, *alone]
