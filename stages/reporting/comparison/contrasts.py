"""By how much groups of trials differ in one axis, how sure that is, and what differs besides.

What differs between the groups of a contrast besides its axis (parameters, FLOPs, tokens, settings
of the optimisation, ...) is named as a confound.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from stages.core.params import Params
from stages.evaluation.statistics import Interval, difference, holm
from stages.reporting.comparison.axes import (
    AXES,
    Axis,
    confounded_settings,
    differing,
    levels_of,
    pairs,
)
from stages.reporting.comparison.cells import AMOUNTS, Cell, budget_order, seeds
from stages.reporting.comparison.groups import Group
from stages.reporting.number_format import compact, digits, significant


@dataclass(frozen=True)
class Contrast:
    """``a`` against ``b``; the effect is a's mean score less b's, whichever sign is better."""

    axis: Axis
    task: str
    a: Cell
    b: Cell
    level_a: str
    level_b: str
    effect: Interval
    p_holm: float | None
    settings: tuple[str, ...]  # confounds that params.yaml knows

    @property
    def metric(self) -> str:
        return self.a.metric

    @property
    def method(self) -> str:
        return _both(self.a.method, self.b.method)

    @property
    def label_budget(self) -> str:
        return _both(self.a.label_budget, self.b.label_budget)

    @property
    def resolved(self) -> bool:
        return self.effect.excludes_zero

    @property
    def verdict(self) -> str:
        """Never stronger than the numbers."""
        if self.effect.low is None:
            return f"{self.effect.basis}: no interval"
        verdict = "resolved" if self.resolved else "not resolved"
        assert self.p_holm is not None
        corrected = self.p_holm < 1 - self.a.confidence or not self.resolved
        return verdict if corrected else "resolved alone, not after correction"

    @property
    def shown(self) -> str:
        """The verdict, and what it would take if there is none."""
        if self.verdict != "not resolved":
            return self.verdict
        needed = self.effect.seeds_needed
        return f"{self.verdict} ({needed} seeds would)" if needed else self.verdict

    @property
    def seeds(self) -> str:
        """``5`` fine-tuning seeds, or ``3 x 5`` where there are several pretraining seeds."""
        return _both(seeds(self.a), seeds(self.b))

    @property
    def confounds(self) -> list[str]:
        """What differs besides the axis, as ``name: a v. b``."""
        one, other = self.a.amounts, self.b.amounts
        amounts = [
            f"{AMOUNTS[key]}: {compact(one[key])} v. {compact(other[key])}"
            for key in AMOUNTS
            if not self._agree(one[key], other[key])
        ]
        return [*amounts, *self.settings]

    def _agree(self, one: int | None, other: int | None) -> bool:
        """Unknown amounts may differ, but for those of one and the same checkpoint."""
        if one is None or other is None:
            return self.a.group == self.b.group
        return math.isclose(one, other, rel_tol=0.01)

    def row(self) -> dict[str, Any]:
        """A row of reports/contrasts.csv; an empty field is a number that does not exist, or that
        nobody knows."""
        amounts = {
            f"{key}_{side}": cell.amounts[key]
            for key in self.a.amounts
            for side, cell in (("a", self.a), ("b", self.b))
        }
        return {
            "axis": self.axis,
            "task": self.task,
            "method": self.method,
            "label_budget": self.label_budget,
            "run_a": self.a.group,
            "run_b": self.b.group,
            "level_a": self.level_a,
            "level_b": self.level_b,
            "mean_a": digits(self.a.mean.value),
            "mean_b": digits(self.b.mean.value),
            "effect": digits(self.effect.value),
            "low": digits(self.effect.low),
            "high": digits(self.effect.high),
            "p_value": significant(self.effect.p_value),
            "p_holm": significant(self.p_holm),
            "test": self.effect.test,
            "basis": self.effect.basis,
            "seeds": self.seeds,
            "resolved": "yes" if self.resolved else "no",
            "verdict": self.verdict,
            "seeds_needed": self.effect.seeds_needed if self.verdict == "not resolved" else None,
            **amounts,
            "confounds": "; ".join(self.confounds),
        }


def contrasts(
    params: Params, all_groups: Sequence[Group], all_cells: Sequence[Cell]
) -> list[Contrast]:
    """Every contrast of the study, corrected together, sorted by axis and then by task."""
    confidence = params.evaluation.confidence
    cell = {(c.group, c.task, c.method, c.label_budget): c for c in all_cells}
    methods = list(params.finetune.methods)
    budgets = sorted(map(str, params.finetune.label_budgets), key=budget_order, reverse=True)
    found: list[tuple[Axis, str, Cell, Cell, str, str, tuple[str, ...]]] = []

    def add(axis: Axis, task: str, a: Any, b: Any, levels: tuple[str, str], *settings: str) -> None:
        if a in cell and b in cell:  # a method that does not fit a run has no trials with it
            found.append((axis, task, cell[a], cell[b], *levels, settings))

    for axis, a, b in pairs(all_groups):
        levels, settings = levels_of(axis, a, b), confounded_settings(axis, a, b)
        for task in params.tasks:
            for method in methods:
                for n in budgets:
                    keys = (a.name, task, method, n), (b.name, task, method, n)
                    add(axis, task, *keys, levels, *settings)
    for group in all_groups:
        for task in params.tasks:
            for n in budgets:
                for a, b in combinations(methods, 2):
                    keys = (group.name, task, a, n), (group.name, task, b, n)
                    add("method", task, *keys, (a, b), *_method_settings(params, a, b))
            for method in methods:
                for m, n in combinations(budgets, 2):
                    keys = (group.name, task, method, m), (group.name, task, method, n)
                    add("label budget", task, *keys, (m, n))

    effects = [difference(a.values, b.values, confidence=confidence) for _, _, a, b, *_ in found]
    tested = [i for i, effect in enumerate(effects) if effect.p_value is not None]
    corrected = dict(zip(tested, holm([effects[i].p_value or 0.0 for i in tested]), strict=True))
    unsorted = [
        Contrast(
            axis=axis,
            task=task,
            a=a,
            b=b,
            level_a=level_a,
            level_b=level_b,
            effect=effects[i],
            p_holm=corrected.get(i),
            settings=settings,
        )
        for i, (axis, task, a, b, level_a, level_b, settings) in enumerate(found)
    ]
    tasks = list(params.tasks)
    return sorted(unsorted, key=lambda c: (AXES.index(c.axis), tasks.index(c.task)))


def _method_settings(params: Params, a: str, b: str) -> tuple[str, ...]:
    settings = [params.finetune.methods[m].training for m in (a, b)]
    one, other = (training.model_dump() if training else {} for training in settings)
    return tuple(f"training.{k}: {one[k]} v. {other[k]}" for k in differing(one, other))


def _both(a: str, b: str) -> str:
    return a if a == b else f"{a} v. {b}"
