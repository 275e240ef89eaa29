"""Contrasts: two groups of trials that differ in one axis, with effect, interval and confounds.

A confound is anything else in which the two groups differ: parameters, FLOPs, tokens, training
settings, ...
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product

from stages.core.artifacts import Json
from stages.core.params import Params
from stages.evaluation.moderation import CellKey, Moderation
from stages.evaluation.precision import SOURCES
from stages.evaluation.records import budget_order
from stages.evaluation.statistics import Interval
from stages.reporting.comparison import convergence
from stages.reporting.comparison.axes import (
    Axis,
    confounded_settings,
    differing,
    pairs,
)
from stages.reporting.comparison.axis_levels import levels_of
from stages.reporting.comparison.cells import AMOUNTS, Cell, seeds
from stages.reporting.comparison.groups import Group, Used
from stages.reporting.comparison.verdicts import ONE_SEED, verdict_of_test
from stages.reporting.number_format import compact, six_decimals, three_digits


@dataclass(frozen=True)
class Contrast:
    """``a`` against ``b``. The effect is the mean of ``a`` minus the mean of ``b``, whichever sign
    is better."""

    axis: Axis
    task: str
    a: Cell
    b: Cell
    level_a: str
    level_b: str
    effect: Interval
    p_holm: float | None  # corrected (``questions.py``); None if it has no verdict
    settings: tuple[str, ...]  # the confounds among the settings in params.yaml
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
        """Whether a side was pretrained here, once: another seed might give another result."""
        return self.a.has_one_pretraining_seed or self.b.has_one_pretraining_seed

    @property
    def is_tested(self) -> bool:
        return self.effect.variance is not None and not self.has_one_pretraining_seed

    @cached_property
    def significant_before_correction(self) -> bool:
        """Whether the interval excludes zero."""
        return self.is_tested and self.effect.excludes_zero

    @cached_property
    def significant(self) -> bool:
        """Whether the effect stays significant after Holm correction."""
        if not self.significant_before_correction:
            return False
        assert self.p_holm is not None
        return self.p_holm < 1 - self.a.confidence

    @cached_property
    def verdict(self) -> str:
        """Never stronger than the numbers."""
        if self.effect.variance is None:
            return f"{self.effect.basis}: no interval"
        if self.has_one_pretraining_seed:
            return ONE_SEED
        return verdict_of_test(
            before_correction=self.significant_before_correction,
            after_correction=self.significant,
            published="published" in (self.a.checkpoints, self.b.checkpoints),
        )

    @property
    def seeds_needed(self) -> int | None:
        """Seeds per side that would find an effect of this size, where the study did not; None if
        that is not known."""
        undecided = self.is_tested and not self.significant_before_correction
        return self.effect.seeds_needed if undecided else None

    @property
    def verdict_with_seeds(self) -> str:
        needed = self.seeds_needed
        if needed is None:
            return self.verdict
        return f"{self.verdict} (about {needed} seeds would be needed)"

    @property
    def seeds(self) -> str:
        """``5`` fine-tuning seeds, or ``3 x 5`` (pretraining x fine-tuning) seeds."""
        return _both(seeds(self.a), seeds(self.b))

    @cached_property
    def confounds(self) -> list[str]:
        """Each as ``name: a v. b``."""
        one, other = self.a.amounts, self.b.amounts
        amounts = [
            f"{AMOUNTS[key]}: {compact(one[key])} v. {compact(other[key])}"
            for key in AMOUNTS
            if not self._agree(one[key], other[key])
        ]
        return [*amounts, *self.settings, *convergence.confounds(self.a, self.b)]

    def _agree(self, one: int | None, other: int | None) -> bool:
        """Unknown amounts count as different, unless both sides are the same checkpoint."""
        if one is None or other is None:
            return self.a.group == self.b.group
        return math.isclose(one, other, rel_tol=0.01)

    def row(self) -> Json:
        """A row of reports/contrasts.csv; an empty field is a number that does not exist or is
        unknown."""
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
            "mean_a": six_decimals(self.a.mean.value),
            "mean_b": six_decimals(self.b.mean.value),
            "effect": six_decimals(self.effect.value),
            "low": six_decimals(self.effect.low),
            "high": six_decimals(self.effect.high),
            "p_value": three_digits(self.effect.p_value),
            "p_holm": three_digits(self.p_holm),
            "test": self.effect.test,
            **degrees_of_freedom(self.effect),
            "basis": self.effect.basis,
            "seeds": self.seeds,
            "resolved": "yes" if self.significant_before_correction else "no",
            "verdict": self.verdict,
            "seeds_needed": self.seeds_needed,
            **amounts,
            "confounds": "; ".join(self.confounds),
            **self._variance,
        }

    @cached_property
    def _variance(self) -> Json:
        """Which shares of the variance come from where, and by what share of its width twice as
        many of them would narrow the interval."""
        variance, confidence = self.effect.variance, self.a.confidence
        if variance is None:
            return {}
        shares = {f"share_{end}": variance.share(source) for source, end in SOURCES.items()}
        twice = {
            f"narrower_{end}": variance.narrower(source, confidence)
            for source, end in SOURCES.items()
        }
        return {key: three_digits(value) for key, value in (shares | twice).items()}


@dataclass(frozen=True)
class _Candidate:
    """Two cells to compare, if the study has both."""

    axis: Axis
    a: CellKey
    b: CellKey
    levels: tuple[str, str]
    settings: tuple[str, ...] = ()


def contrasts(
    params: Params,
    all_groups: Sequence[Group],
    all_cells: Sequence[Cell],
    moderation: Moderation,
) -> list[Contrast]:
    """Every contrast of the study, not yet corrected."""
    cell = {c.key: c for c in all_cells}
    # A method that is incompatible with a run has no trials with it.
    candidates = [
        candidate
        for candidate in (
            *_of_runs(params, all_groups, all_cells),
            *_of_finetuning(params, all_groups),
        )
        if candidate.a in cell and candidate.b in cell
    ]
    return [
        Contrast(
            axis=candidate.axis,
            task=candidate.a.task,
            a=cell[candidate.a],
            b=cell[candidate.b],
            level_a=candidate.levels[0],
            level_b=candidate.levels[1],
            effect=moderation.difference(candidate.a, candidate.b),
            p_holm=None,
            settings=candidate.settings,
            number=number,
        )
        for number, candidate in enumerate(candidates)
    ]


def _of_runs(
    params: Params, all_groups: Sequence[Group], all_cells: Sequence[Cell]
) -> Iterator[_Candidate]:
    """Two groups of runs, fine-tuned with the same method and label budget, paired by what the task
    uses of them."""
    trials = [trial for cell in all_cells for trial in cell.trials]
    for task, method in product(params.tasks, params.finetune.methods):
        used = Used.by_group(all_groups, trials, task=task, method=method)
        for axis, a, b in pairs(all_groups, used):
            levels, settings = levels_of(axis, a, b, used), confounded_settings(axis, a, b)
            for n in _budgets(params):
                keys = CellKey(a.name, task, method, n), CellKey(b.name, task, method, n)
                yield _Candidate(axis, *keys, levels, settings)


def _of_finetuning(params: Params, all_groups: Sequence[Group]) -> Iterator[_Candidate]:
    """One group with two methods, and with two label budgets."""
    methods, budgets = list(params.finetune.methods), _budgets(params)
    for group, task in product(all_groups, params.tasks):
        for n, (a, b) in product(budgets, combinations(methods, 2)):
            keys = CellKey(group.name, task, a, n), CellKey(group.name, task, b, n)
            yield _Candidate("method", *keys, (a, b), _method_settings(params, a, b))
        for method, (m, n) in product(methods, combinations(budgets, 2)):
            keys = CellKey(group.name, task, method, m), CellKey(group.name, task, method, n)
            yield _Candidate("label budget", *keys, (m, n))


def _budgets(params: Params) -> list[str]:
    """The largest first."""
    return sorted(map(str, params.finetune.label_budgets), key=budget_order, reverse=True)


def _method_settings(params: Params, a: str, b: str) -> tuple[str, ...]:
    settings = [params.finetune.methods[m].training for m in (a, b)]
    one, other = (training.model_dump() if training else {} for training in settings)
    return tuple(f"training.{k}: {one[k]} v. {other[k]}" for k in differing(one, other))


def degrees_of_freedom(effect: Interval) -> Json:
    """Those of the variance between seeds, and how many of them come from other cells."""
    between = effect.variance.between if effect.variance else None
    return {
        "df": three_digits(between.df if between else None),
        "df_other_cells": three_digits(between.prior_df if between else None),
    }


def _both(a: str, b: str) -> str:
    return a if a == b else f"{a} v. {b}"
