"""Questions: the effect of one axis between two runs, averaged over all tasks.

They are the primary tests of a study, and are corrected together. Contrasts on single tasks follow
where their question is answered; the others only describe (``statistics.two_stages``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from stages.core.artifacts import Json
from stages.evaluation.metrics import merit, scale_of
from stages.evaluation.moderation import Moderation
from stages.evaluation.statistics import Interval, two_stages
from stages.reporting.comparison.axes import AXES, Axis
from stages.reporting.comparison.contrasts import Contrast, degrees_of_freedom
from stages.reporting.comparison.verdicts import ONE_SEED, TASKS_DISAGREE, verdict_of_test
from stages.reporting.number_format import six_decimals, three_digits

COLUMNS = [
    *("axis", "run_a", "run_b", "level_a", "level_b", "method", "label_budget", "num_tasks"),
    *("unit", "effect", "low", "high", "p_value", "p_holm", "df", "df_other_cells", "verdict"),
    *("largest_task", "largest_effect", "smallest_task", "smallest_effect"),
]


@dataclass(frozen=True, eq=False)
class Question:
    """The contrasts between two runs (or methods, or label budgets) on all tasks whose metrics have
    one unit, and their mean."""

    contrasts: tuple[Contrast, ...]  # one for each task
    effect: Interval
    p_holm: float | None  # None if it has no verdict

    @property
    def first(self) -> Contrast:
        return self.contrasts[0]

    @property
    def axis(self) -> Axis:
        return self.first.axis

    @property
    def metric(self) -> str:
        """One that has the unit of all of them."""
        return self.first.metric

    @property
    def num_tasks(self) -> int:
        return len(self.contrasts)

    @property
    def is_tested(self) -> bool:
        return self.effect.variance is not None and self.first.is_tested

    @property
    def significant_before_correction(self) -> bool:
        return self.is_tested and self.effect.excludes_zero

    @property
    def significant(self) -> bool:
        is_small = self.p_holm is not None and self.p_holm < 1 - self.effect.confidence
        return self.significant_before_correction and is_small

    @cached_property
    def tasks_disagree(self) -> bool:
        """Whether one task has a positive and another a negative effect beyond chance: by tests at
        the error rate divided by the number of tasks."""
        alpha = (1 - self.effect.confidence) / self.num_tasks
        clear = [
            c.effect for c in self.contrasts if c.is_tested and (c.effect.p_value or 0) < alpha
        ]
        return len({effect.value > 0 for effect in clear}) == 2

    @cached_property
    def verdict(self) -> str:
        """Never stronger than the numbers, as of a contrast."""
        if self.effect.variance is None:
            return f"{self.effect.basis}: no interval"
        if not self.first.is_tested:
            return ONE_SEED
        if self.tasks_disagree:
            return TASKS_DISAGREE
        return verdict_of_test(
            before_correction=self.significant_before_correction,
            after_correction=self.significant,
            published="published" in (self.first.a.checkpoints, self.first.b.checkpoints),
        )

    @cached_property
    def by_size(self) -> list[Contrast]:
        """The contrasts, that of the largest gain of the first side first."""
        return sorted(self.contrasts, key=lambda c: -merit(c.metric, c.effect.value))

    def row(self) -> Json:
        """A row of reports/questions.csv."""
        first, ends = self.first, (self.by_size[0], self.by_size[-1])
        largest, smallest = ends if self.effect.value >= 0 else ends[::-1]
        return {
            "axis": self.axis,
            "run_a": first.a.group,
            "run_b": first.b.group,
            "level_a": first.level_a,
            "level_b": first.level_b,
            "method": first.method,
            "label_budget": first.label_budget,
            "num_tasks": self.num_tasks,
            "unit": unit_of(self.metric),
            "effect": six_decimals(self.effect.value),
            "low": six_decimals(self.effect.low),
            "high": six_decimals(self.effect.high),
            "p_value": three_digits(self.effect.p_value),
            "p_holm": three_digits(self.p_holm),
            **degrees_of_freedom(self.effect),
            "verdict": self.verdict,
            "largest_task": largest.task,
            "largest_effect": six_decimals(largest.effect.value),
            "smallest_task": smallest.task,
            "smallest_effect": six_decimals(smallest.effect.value),
        }


def unit_of(metric: str) -> str:
    """Scores with one unit can be averaged: points, or the metric itself."""
    return scale_of(metric).unit or metric


def questions(uncorrected: Sequence[Contrast], moderation: Moderation) -> list[Question]:
    """All questions in the order of their axes, with corrected p-values for them and for their
    contrasts."""
    members: dict[tuple[object, ...], list[Contrast]] = {}
    for contrast in uncorrected:
        sides = [(c.group, c.method, c.label_budget) for c in (contrast.a, contrast.b)]
        scale = scale_of(contrast.metric)
        alike = unit_of(contrast.metric), scale.lower_is_better, contrast.is_tested
        members.setdefault((contrast.axis, *sides, *alike), []).append(contrast)
    found = [Question(tuple(some), _mean(some, moderation), None) for some in members.values()]
    tested = [question for question in found if question.is_tested]
    alpha = 1 - moderation.confidence
    of_questions, of_contrasts = two_stages(
        [question.effect.p_value or 0.0 for question in tested],
        [_p_values_below(question) for question in tested],
        alpha=alpha,
    )
    corrected = [
        _corrected(question, p, below or [p])
        for question, p, below in zip(tested, of_questions, of_contrasts, strict=True)
    ]
    with_p_values = dict(zip(tested, corrected, strict=True))
    return sorted(
        (with_p_values.get(question, question) for question in found),
        key=lambda question: AXES.index(question.axis),
    )


def _corrected(question: Question, p_holm: float, of_contrasts: Sequence[float]) -> Question:
    """The question and its contrasts with their corrected p-values."""
    contrasts = tuple(
        replace(contrast, p_holm=p)
        for contrast, p in zip(question.contrasts, of_contrasts, strict=True)
    )
    return replace(question, contrasts=contrasts, p_holm=p_holm)


def _mean(contrasts: Sequence[Contrast], moderation: Moderation) -> Interval:
    if len(contrasts) == 1:
        return contrasts[0].effect
    return moderation.mean_difference([(c.a.key, c.b.key) for c in contrasts])


def _p_values_below(question: Question) -> list[float]:
    """A question about one task is its contrast."""
    if question.num_tasks == 1:
        return []
    return [contrast.effect.p_value or 0.0 for contrast in question.contrasts]
