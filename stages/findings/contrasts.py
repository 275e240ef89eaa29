"""Contrasts: pairs of cells that differ in one axis, on one task. The second stage of a study."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product

from stages.core.keys import CellKey
from stages.core.params import Method
from stages.evaluation.metrics import scale_of
from stages.evaluation.moderation import Moderation
from stages.evaluation.statistics import Interval, holm
from stages.findings import convergence
from stages.findings.axes import Pair, differences, differing
from stages.findings.cells import AMOUNTS, Cell, Scores
from stages.findings.facts import (
    AxisName,
    Choice,
    Contrast,
    Difference,
    Estimate,
    MainEffect,
    Verdict,
)

FIRST_STAGE = 0.04  # error rate of the main effects

# Amounts that necessarily differ between the two sides of a contrast on these axes.
PART_OF_AXIS: dict[str, tuple[str, ...]] = {
    "size": ("parameters", "trained parameters"),
    "pretrained": ("tokens seen", "pretraining FLOPs", "bytes read"),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Compared:
    """Two cells that differ in one axis, on one task, with the difference of b less a."""

    axis: AxisName
    a: Cell
    b: Cell
    level_a: str
    level_b: str
    interval: Interval
    settings: tuple[Difference, ...]  # settings in params.yaml that also differ

    @property
    def task(self) -> str:
        return self.a.task

    @property
    def metric(self) -> str:
        return self.a.metric

    @property
    def is_tested(self) -> bool:
        is_single = self.a.has_one_pretraining_seed or self.b.has_one_pretraining_seed
        return self.interval.variance is not None and not is_single

    @cached_property
    def also_differs(self) -> tuple[Difference, ...]:
        """What the sides differ in beside the axis: settings, amounts and faults of training."""
        one, other = self.a.amounts, self.b.amounts
        part_of_axis = PART_OF_AXIS.get(self.axis, ())
        amounts = [
            Difference(name, one[key], other[key])
            for key, name in AMOUNTS.items()
            if name not in part_of_axis and not self._agree(one[key], other[key])
        ]
        return (*self.settings, *amounts, *convergence.differences(self.a, self.b))

    def _agree(self, one: int | None, other: int | None) -> bool:
        """Whether two amounts are equal within 1 %. Unknown amounts count as different, unless both
        sides are of the same model."""
        if one is None or other is None:
            return self.a.group == self.b.group
        return math.isclose(one, other, rel_tol=0.01)


def verdict_of(interval: Interval, p_holm: float | None, *, is_tested: bool) -> Verdict:
    """Returns the verdict on a difference: it is significant if its interval excludes zero and
    ``p_holm`` is below the study's error rate."""
    if interval.variance is None:
        return Verdict.NOT_TESTED
    if not is_tested:
        return Verdict.ONE_SEED
    if not interval.excludes_zero:
        return Verdict.NOT_SIGNIFICANT
    is_small = p_holm is not None and p_holm < 1 - interval.confidence
    return Verdict.SIGNIFICANT if is_small else Verdict.UNSURE


def unit_of(metric: str) -> tuple[str, bool]:
    """Returns the unit of a metric's scores (the metric itself if it has none), and whether lower
    values are better. Scores of the same unit can be averaged."""
    scale = scale_of(metric)
    return scale.unit or metric, scale.lower_is_better


def compared(
    scores: Scores, matched: Sequence[Pair], methods: Mapping[str, Method], moderation: Moderation
) -> list[Compared]:
    """Returns all cells that the study compares: those of each matched pair of models
    on each task, method and label budget; then, for each model, its pairs of methods and of label
    budgets. ``methods`` are the entries of ``finetune.methods``."""
    cells = {cell.key: cell for cell in scores.cells}
    return [
        Compared(
            axis=axis,
            a=cells[a],
            b=cells[b],
            level_a=levels[0],
            level_b=levels[1],
            interval=moderation.difference(b, a),
            settings=settings,
        )
        for axis, a, b, levels, settings in _keys(scores, matched, methods)
        if a in cells and b in cells  # a method may be incompatible with a model
    ]


Place = tuple[AxisName, CellKey, CellKey, tuple[str, str], tuple[Difference, ...]]


def _keys(
    scores: Scores, matched: Sequence[Pair], methods: Mapping[str, Method]
) -> Iterator[Place]:
    budgets, largest_first = scores.label_budgets, [*reversed(scores.label_budgets)]
    for pair, task in product(matched, scores.tasks):
        settings = differences(pair.axis, pair.a, pair.b)
        for (name, entry), n in product(methods.items(), largest_first):
            also = settings + _unlike_training(entry.of(pair.a.name), entry.of(pair.b.name))
            a, b = (CellKey(group.name, task, name, n) for group in (pair.a, pair.b))
            yield pair.axis, a, b, (pair.level_a, pair.level_b), also
    for group, task in product(scores.groups, scores.tasks):
        for n, (one, other) in product(largest_first, combinations(methods, 2)):
            also = _unlike_training(methods[one].of(group.name), methods[other].of(group.name))
            a, b = (CellKey(group.name, task, method, n) for method in (one, other))
            yield "method", a, b, (one, other), also
        for method, (fewer, more) in product(methods, combinations(budgets, 2)):
            a, b = (CellKey(group.name, task, method, n) for n in (fewer, more))
            yield "label budget", a, b, (fewer, more), ()


def _unlike_training(a: Method, b: Method) -> tuple[Difference, ...]:
    """Returns the settings of fine-tuning in which two entries differ."""
    one, other = (each.training.model_dump() if each.training else {} for each in (a, b))
    return tuple(
        Difference(f"finetune.training.{key}", one[key], other[key])
        for key in differing(one, other)
    )


def contrasts(
    found: Sequence[Compared],
    effects: Sequence[MainEffect],
    choice_of: Callable[[Cell], Choice],
    *,
    confidence: float,
) -> list[Contrast]:
    """Returns the contrasts with their verdicts."""
    corrected = _second_stage(found, effects, confidence=confidence)
    return [
        Contrast(
            axis=each.axis,
            task=each.task,
            a=choice_of(each.a),
            b=choice_of(each.b),
            label_budget_a=each.a.label_budget,
            label_budget_b=each.b.label_budget,
            level_a=each.level_a,
            level_b=each.level_b,
            metric=each.metric,
            estimate=Estimate(each.interval.value, each.interval.low, each.interval.high),
            df=each.interval.variance.df if each.interval.variance else None,
            test=each.interval.test,
            basis=each.interval.basis,
            p=each.interval.p_value,
            p_holm=p_holm,
            verdict=verdict_of(each.interval, p_holm, is_tested=each.is_tested),
            seeds_needed=(
                each.interval.seeds_needed
                if each.is_tested and not each.interval.excludes_zero
                else None
            ),
            also_differs=each.also_differs,
        )
        for each, p_holm in zip(found, corrected, strict=True)
    ]


def _second_stage(
    found: Sequence[Compared], effects: Sequence[MainEffect], *, confidence: float
) -> list[float | None]:
    """Returns the corrected p-value of each contrast; None for one that is not tested.

    The contrasts of all significant main effects are corrected together (Holm). No contrast is
    surer than its main effect, so those of the others cannot be significant.
    """
    share = (1 - confidence) / FIRST_STAGE
    of_effect = {
        (effect.axis, effect.level_a, effect.level_b, unit_of(effect.metric)): share * effect.p_holm
        for effect in effects
        if effect.p_holm is not None
    }
    gates = [
        of_effect.get((c.axis, c.level_a, c.level_b, unit_of(c.metric)), 1.0)
        if c.is_tested
        else None
        for c in found
    ]
    p_values = [contrast.interval.p_value or 0.0 for contrast in found]
    opened = [i for i, gate in enumerate(gates) if gate is not None and gate < 1 - confidence]
    together = dict(zip(opened, holm([p_values[i] for i in opened]), strict=True))
    return [
        None if gate is None else min(max(together.get(i, p_values[i]), gate), 1.0)
        for i, gate in enumerate(gates)
    ]
