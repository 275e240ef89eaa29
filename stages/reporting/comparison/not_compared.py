"""Comparisons that the study could suggest and does not make, each with its reason."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import product

from stages.reporting.comparison.axes import axis_between, left_out
from stages.reporting.comparison.axis_levels import levels_of
from stages.reporting.comparison.groups import Used
from stages.reporting.comparison.results import Results


@dataclass(frozen=True)
class NotCompared:
    """Two groups, or one that nothing is compared with (``b`` and ``axis`` are empty)."""

    axis: str
    a: str
    b: str
    level_a: str
    level_b: str
    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    reason: str


def not_compared(results: Results) -> list[NotCompared]:
    """In the order of params.yaml. Tasks and methods with the same reason share an entry."""
    places: dict[tuple[str, ...], list[tuple[str, str]]] = defaultdict(list)
    for task, method in product(results.params.tasks, results.methods):
        used = Used.by_group(results.groups, results.trials, task=task, method=method)
        for each in left_out(results.groups, used):
            levels = levels_of(each.axis, each.a, each.b, used)
            key = (each.axis, each.a.name, each.b.name, *levels, each.reason)
            places[key].append((task, method))
    found = [
        NotCompared(
            *key[:5],
            tasks=tuple(dict.fromkeys(task for task, _ in where)),
            methods=tuple(dict.fromkeys(method for _, method in where)),
            reason=key[5],
        )
        for key, where in places.items()
    ]
    return [*found, *_alone(results)]


def _alone(results: Results) -> list[NotCompared]:
    """Groups that differ from every other in more than one axis, or from none in any, and of which
    no task uses what it uses of another one."""
    compared = {
        side.group
        for contrast in results.contrasts
        for side in (contrast.a, contrast.b)
        if contrast.a.group != contrast.b.group
    }
    return [
        NotCompared(
            axis="",
            a=group.name,
            b="",
            level_a="",
            level_b="",
            tasks=tuple(results.params.tasks),
            methods=tuple(results.methods),
            reason="no other run differs from it in exactly one axis",
        )
        for group in results.groups
        if len(results.groups) > 1
        and group.name not in compared
        and not any(axis_between(group, other) for other in results.groups if other is not group)
    ]


def not_compared_rows(results: Results) -> list[dict[str, str]]:
    """The table on the pages."""
    every = tuple(results.params.tasks), tuple(results.methods)
    return [
        {
            "axis": each.axis or "any",
            "first": f"{each.a}: {each.level_a}" if each.level_a else each.a,
            "second": f"{each.b}: {each.level_b}" if each.level_b else each.b,
            "tasks": "all" if each.tasks == every[0] else ", ".join(each.tasks),
            "methods": "all" if each.methods == every[1] else ", ".join(each.methods),
            "reason": each.reason,
        }
        for each in not_compared(results)
    ]
