"""Contrasts: pairs of cells that differ in one axis, on one task. The second stage of a study."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import TYPE_CHECKING

from stages.core.keys import CellKey
from stages.core.params import Method
from stages.evaluation.metrics import unit_of
from stages.evaluation.statistics import Interval, holm
from stages.findings.axes import differences, differing
from stages.findings.cells import AMOUNTS, Cell
from stages.findings.facts import AxisName, Contrast, Difference, Estimate, Verdict

if TYPE_CHECKING:
    from stages.findings.results import Results

Differences, Levels = tuple[Difference, ...], tuple[str, str]

UNFITTED, MUCH = 0.1, 10.0  # a mean training loss in nats; a ratio of two such losses
FIRST_STAGE = 0.04  # error rate of the main effects

# Amounts that necessarily differ between the two sides of a contrast on these axes.
PART_OF_AXIS: dict[str, tuple[str, ...]] = {
    "size": ("parameters", "trained parameters"),
    "pretrained": ("tokens seen", "pretraining FLOPs", "bytes read"),
}


@dataclass(frozen=True, eq=False)
class Compared:
    """Two cells that differ in one axis, on one task, with the difference of b less a."""

    axis: AxisName
    a: Cell
    b: Cell
    level_a: str
    level_b: str
    interval: Interval
    settings: Differences  # settings in params.yaml that also differ

    @property
    def metric(self) -> str:
        return self.a.metric

    @property
    def levels(self) -> tuple[AxisName, str, str]:
        return self.axis, self.level_a, self.level_b

    @property
    def is_tested(self) -> bool:
        is_single = self.a.sample.is_fixed or self.b.sample.is_fixed
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
        return (*self.settings, *amounts, *self._differences_in_fit)

    @property
    def _differences_in_fit(self) -> Iterator[Difference]:
        """Yields "not converged" if a side has a fault, and "fitted unequally" if a side was fitted
        to its labels much less than the other with the same method.

        A side's own curve does not show that it is unfitted, since a training loss may be as flat
        before a model learns as at the end. Only the other side shows that a lower one is possible.
        """
        names, losses = (self.a.faults, self.b.faults), (self.a.training_loss, self.b.training_loss)
        if any(names):
            yield Difference("not converged", *names)
        known = [loss for loss in losses if loss is not None]
        unequal = len(known) == 2 and max(known) >= max(UNFITTED, MUCH * min(known))
        if self.a.method == self.b.method and unequal:
            yield Difference("fitted unequally", *losses)

    def _agree(self, one: int | None, other: int | None) -> bool:
        """Whether two amounts are equal within 1 %. Unknown amounts count as different, unless both
        sides are of the same model."""
        if one is None or other is None:
            return self.a.model == self.b.model
        return math.isclose(one, other, rel_tol=0.01)

    def tested(self, p_holm: float | None) -> Contrast:
        """Returns the contrast with its verdict: the difference is significant if its interval
        excludes zero and ``p_holm`` is below the study's error rate."""
        interval, seeds_needed = self.interval, None
        if interval.variance is None:
            verdict = Verdict.NOT_TESTED
        elif not self.is_tested:
            verdict = Verdict.ONE_SEED
        elif not interval.excludes_zero:
            verdict, seeds_needed = Verdict.NOT_SIGNIFICANT, interval.seeds_needed
        else:
            is_sure = p_holm is not None and p_holm < 1 - interval.confidence
            verdict = Verdict.SIGNIFICANT if is_sure else Verdict.UNSURE
        return Contrast(
            axis=self.axis,
            task=self.a.task,
            a=self.a.choice,
            b=self.b.choice,
            label_budget_a=self.a.label_budget,
            label_budget_b=self.b.label_budget,
            level_a=self.level_a,
            level_b=self.level_b,
            metric=self.metric,
            estimate=Estimate(interval.value, interval.low, interval.high),
            df=interval.variance.df if interval.variance else None,
            test=interval.test,
            basis=interval.basis,
            p=interval.p_value,
            p_holm=p_holm,
            verdict=verdict,
            seeds_needed=seeds_needed,
            also_differs=self.also_differs,
        )


def compared(results: "Results") -> list[Compared]:
    """Returns all cells that the study compares: those of each matched pair of models on each task,
    method and label budget; then, for each model, its pairs of methods and of label budgets."""
    cells, every = {cell.key: cell for cell in results.cells}, list[Compared]()

    def compare(
        a: CellKey, b: CellKey, axis: AxisName, levels: Levels, settings: Differences = ()
    ) -> None:
        if a in cells and b in cells:  # a method may be incompatible with a model
            interval = results.moderation.difference(b, a)
            every.append(Compared(axis, cells[a], cells[b], *levels, interval, settings))

    methods, tasks, budgets = results.params.finetune.methods, results.params.tasks, results.budgets
    largest_first = [*reversed(budgets)]
    for pair, task in product(results.pairs, tasks):
        names, levels = (pair.a.name, pair.b.name), (pair.level_a, pair.level_b)
        settings = differences(pair.axis, pair.a, pair.b)
        for (method, entry), n in product(methods.items(), largest_first):
            also = settings + _unlike_training(*map(entry.of, names))
            a, b = (CellKey(name, task, method, n) for name in names)
            compare(a, b, pair.axis, levels, also)
    for name, task in product([model.name for model in results.models], tasks):
        for n, pair in product(largest_first, combinations(methods, 2)):
            also = _unlike_training(*(methods[method].of(name) for method in pair))
            a, b = (CellKey(name, task, method, n) for method in pair)
            compare(a, b, "method", pair, also)
        for method, pair in product(methods, combinations(budgets, 2)):
            a, b = (CellKey(name, task, method, n) for n in pair)
            compare(a, b, "label budget", pair)
    return every


def _unlike_training(a: Method, b: Method) -> tuple[Difference, ...]:
    """Returns the settings of fine-tuning in which two entries differ."""
    one, other = (each.training.model_dump() if each.training else {} for each in (a, b))
    return tuple(
        Difference(f"finetune.training.{key}", one[key], other[key])
        for key in differing(one, other)
    )


def contrasts(results: "Results") -> list[Contrast]:
    """Returns the contrasts with their verdicts.

    The contrasts of all significant main effects are corrected together (Holm). No contrast is
    surer than its main effect, so those of the others cannot be significant.
    """
    alpha = 1 - results.confidence
    of_effect = {
        (e.axis, e.level_a, e.level_b, unit_of(e.metric)): alpha / FIRST_STAGE * e.p_holm
        for e in results.effects
        if e.p_holm is not None
    }
    tested = [c for c in results.compared if c.is_tested]
    gates = [of_effect.get((*c.levels, unit_of(c.metric)), 1.0) for c in tested]
    own = [c.interval.p_value or 0.0 for c in tested]
    together = holm([p if gate < alpha else None for p, gate in zip(own, gates, strict=True)])
    p_holm = {
        id(c): min(max(p if corrected is None else corrected, gate), 1.0)
        for c, p, corrected, gate in zip(tested, own, together, gates, strict=True)
    }
    return [c.tested(p_holm.get(id(c))) for c in results.compared]
