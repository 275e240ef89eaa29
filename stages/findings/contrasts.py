"""Contrasts: two groups of trials that differ in one axis, with effect, interval and confounds.

A confound is anything else in which the two groups differ: parameters, FLOPs, tokens, training
settings, ...
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations, product

from stages.core.keys import CellKey
from stages.core.params import Method
from stages.evaluation.moderation import Moderation
from stages.findings import convergence
from stages.findings.axes import (
    Axis,
    Confound,
    confounded_settings,
    differing,
    levels_of,
    pairs,
)
from stages.findings.cells import AMOUNTS, Cell
from stages.findings.groups import Used
from stages.findings.scores import Scores
from stages.findings.verdicts import Tested

# Amounts that necessarily differ between the two sides of a contrast on these axes.
PART_OF_AXIS: dict[Axis, tuple[str, ...]] = {
    "size": ("parameters", "trained parameters"),
    "pretrained": ("tokens seen", "pretraining FLOPs", "bytes read"),
}


@dataclass(frozen=True, kw_only=True)
class Contrast(Tested):
    """A comparison of ``a`` with ``b``. The effect is the mean of ``a`` minus the mean of ``b``,
    also for a metric of which lower values are better."""

    axis: Axis
    task: str
    a: Cell
    b: Cell
    level_a: str
    level_b: str
    settings: tuple[Confound, ...]  # the confounds among the settings in params.yaml
    number: int  # its place among all contrasts of the study

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
    def has_one_pretraining_seed(self) -> bool:
        return self.a.has_one_pretraining_seed or self.b.has_one_pretraining_seed

    @property
    def of_published(self) -> bool:
        return "published" in (self.a.checkpoints, self.b.checkpoints)

    @property
    def sides(self) -> tuple[Cell, Cell]:
        return self.a, self.b

    @property
    def is_between_runs(self) -> bool:
        return self.a.group != self.b.group

    def other(self, side: Cell) -> Cell:
        return self.b if side is self.a else self.a

    @property
    def seeds_needed(self) -> int | None:
        """The number of seeds per side needed to find an effect of this size. None if the study
        found the effect or did not test it, or if the number is unknown."""
        undecided = self.is_tested and not self.significant_before_correction
        return self.effect.seeds_needed if undecided else None

    @cached_property
    def confounds(self) -> list[Confound]:
        one, other = self.a.amounts, self.b.amounts
        amounts = [
            Confound(AMOUNTS[key], (one[key], other[key]))
            for key in AMOUNTS
            if not self._agree(one[key], other[key])
        ]
        return [*self.settings, *amounts, *convergence.confounds(self.a, self.b)]

    @property
    def confound_names(self) -> list[str]:
        """The names of the confounds that are not part of the axis."""
        names = [confound.name for confound in self.confounds]
        return [name for name in names if name not in PART_OF_AXIS.get(self.axis, ())]

    def _agree(self, one: int | None, other: int | None) -> bool:
        """Whether two amounts are equal within 1 %. Unknown amounts count as different, unless both
        sides are of the same run."""
        if one is None or other is None:
            return self.a.group == self.b.group
        return math.isclose(one, other, rel_tol=0.01)


def contrasts(
    scores: Scores, methods: Mapping[str, Method], moderation: Moderation
) -> list[Contrast]:
    """Returns every contrast of the study, without corrected p-values: pairs of groups that are
    fine-tuned with the same method and label budget, matched by the part of each model that the
    task uses; then, for each group, its pairs of methods and of label budgets. ``methods`` are the
    entries of ``finetune.methods``."""
    cells = {cell.key: cell for cell in scores.cells}
    budgets = [*reversed(scores.label_budgets)]
    made: list[Contrast] = []

    def compare(
        axis: Axis,
        a: CellKey,
        b: CellKey,
        levels: tuple[str, str],
        settings: tuple[Confound, ...] = (),
    ) -> None:
        if a not in cells or b not in cells:  # a method is incompatible with a run
            return
        made.append(
            Contrast(
                axis=axis,
                task=a.task,
                a=cells[a],
                b=cells[b],
                level_a=levels[0],
                level_b=levels[1],
                effect=moderation.difference(a, b),
                p_holm=None,
                settings=settings,
                number=len(made),
            )
        )

    trials = [trial for cell in scores.cells for trial in cell.trials]
    for task, (method, entry) in product(scores.tasks, methods.items()):
        used = Used.by_group(scores.groups, trials, task=task, method=method)
        for axis, a, b in pairs(scores.groups, used):
            finetuned = _unlike_training(entry.of(a.name), entry.of(b.name))
            settings = confounded_settings(axis, a, b) + finetuned
            levels = levels_of(axis, a, b, used)
            for n in budgets:
                keys = CellKey(a.name, task, method, n), CellKey(b.name, task, method, n)
                compare(axis, *keys, levels, settings)
    for group, task in product(scores.groups, scores.tasks):
        key = partial(CellKey, group.name, task)
        for n, (a, b) in product(budgets, combinations(methods, 2)):
            settings = _unlike_training(methods[a].of(group.name), methods[b].of(group.name))
            compare("method", key(a, n), key(b, n), (a, b), settings)
        for method, (m, n) in product(methods, combinations(budgets, 2)):
            compare("label budget", key(method, m), key(method, n), (m, n))
    return made


def _unlike_training(a: Method, b: Method) -> tuple[Confound, ...]:
    """Returns the settings of fine-tuning in which two entries differ."""
    one, other = (each.training.model_dump() if each.training else {} for each in (a, b))
    return tuple(
        Confound(f"finetune.training.{key}", (one[key], other[key]))
        for key in differing(one, other)
    )


def _both(a: str, b: str) -> str:
    return a if a == b else f"{a} v. {b}"
