"""Contrasts: pairs of cells that differ in one axis, on one task. The second stage of testing."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import TYPE_CHECKING

from stages.core.keys import CellKey
from stages.core.params import Method
from stages.evaluation.statistics import holm
from stages.findings.axes import differences, differing
from stages.findings.cells import AMOUNTS, Cell
from stages.findings.facts import AxisName, Contrast, Difference, Verdict

if TYPE_CHECKING:
    from stages.findings.results import Results

UNFITTED, MUCH = 0.1, 10.0  # a mean training loss in nats; a ratio of two such losses
FIRST_STAGE = 0.04  # error rate of the main effects

# Amounts that necessarily differ between the two sides of a contrast on these axes.
PART_OF_AXIS: dict[str, tuple[str, ...]] = {
    "size": ("parameters", "trained parameters"),
    "pretrained": ("tokens seen", "pretraining FLOPs", "bytes read"),
}


def compared(results: "Results") -> list[Contrast]:
    """Returns all cells that the study compares, not yet tested: those of each matched pair of
    models on each task, method and label budget; then, for each model, its pairs of methods and of
    label budgets."""
    cells, every = {cell.key: cell for cell in results.cells}, list[Contrast]()

    def compare(
        one: CellKey,
        other: CellKey,
        axis: AxisName,
        levels: Sequence[str],
        settings: tuple[Difference, ...] = (),
    ) -> None:
        if not (one in cells and other in cells):  # a method may be incompatible with a model
            return
        a, b, interval = cells[one], cells[other], results.moderation.difference(other, one)
        is_single = a.sample.is_fixed or b.sample.is_fixed
        every.append(
            Contrast(
                axis=axis,
                a=a,
                b=b,
                level_a=levels[0],
                level_b=levels[1],
                metric=a.metric,
                estimate=interval,
                df=interval.variance.df if interval.variance else None,
                p=interval.p_value,
                verdict=Verdict.ONE_SEED if interval.variance and is_single else Verdict.NOT_TESTED,
                also_differs=(*settings, *_amounts(axis, a, b), *_fits(a, b)),
            )
        )

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


def _amounts(axis: AxisName, a: Cell, b: Cell) -> Iterator[Difference]:
    """Yields the amounts that differ by more than 1 %. Unknown amounts count as different, unless
    both sides are of the same model."""
    for key, name in AMOUNTS.items():
        one, other = a.amounts[key], b.amounts[key]
        if one is None or other is None:
            agree = a.model == b.model
        else:
            agree = math.isclose(one, other, rel_tol=0.01)
        if not agree and name not in PART_OF_AXIS.get(axis, ()):
            yield Difference(name, one, other)


def _fits(a: Cell, b: Cell) -> Iterator[Difference]:
    """Yields "not converged" if a side has a fault, and "fitted unequally" if a side was fitted to
    its labels much less than the other with the same method.

    A side's own curve does not show that it is unfitted, since a training loss may be as flat
    before a model learns as at the end. Only the other side shows that a lower one is possible.
    """
    if a.faults or b.faults:
        yield Difference("not converged", a.faults, b.faults)
    losses = [loss for loss in (a.training_loss, b.training_loss) if loss is not None]
    is_unequal = len(losses) == 2 and max(losses) >= max(UNFITTED, MUCH * min(losses))
    if a.method == b.method and is_unequal:
        yield Difference("fitted unequally", *losses)


def contrasts(results: "Results") -> list[Contrast]:
    """Returns the contrasts with their verdicts: a difference is significant if its interval
    excludes zero and its corrected p-value is below the study's error rate.

    The contrasts of all significant main effects are corrected together (Holm). No contrast is
    surer than its main effect, so those of the others cannot be significant.
    """
    alpha = 1 - results.confidence
    effects = [(effect.family, effect.p_holm) for effect in results.effects]
    gates = {family: alpha / FIRST_STAGE * p for family, p in effects if p is not None}
    every, tested = results.compared, list[float | None]()
    for c in every:
        is_open = c.p is not None and c.verdict is not Verdict.ONE_SEED
        tested.append(c.p if is_open and gates.get(c.family, 1.0) < alpha else None)
    judged = []
    for c, corrected in zip(every, holm(tested), strict=True):
        if c.p is None or c.verdict is Verdict.ONE_SEED:
            judged.append(c)
            continue
        p = min(max(c.p if corrected is None else corrected, gates.get(c.family, 1.0)), 1.0)
        verdict = Verdict.SIGNIFICANT if p < alpha else Verdict.UNSURE
        verdict = verdict if c.estimate.excludes_zero else Verdict.NOT_SIGNIFICANT
        judged.append(replace(c, p_holm=p, verdict=verdict))
    return judged
