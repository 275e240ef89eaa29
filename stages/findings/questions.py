"""Questions: the effect of one axis between two runs, averaged over all tasks.

They are the primary tests of a study, and are corrected together. A contrast on a single task can
be significant only if its question is; otherwise it is descriptive (``statistics.two_stages``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from stages.evaluation.metrics import merit, scale_of
from stages.evaluation.moderation import Moderation
from stages.evaluation.statistics import holm_threshold, two_stages
from stages.findings.axes import AXES, Axis
from stages.findings.contrasts import Contrast
from stages.findings.verdicts import Family, Tested, Threshold


@dataclass(frozen=True, eq=False, kw_only=True)
class Question(Tested):
    """The contrasts between two runs (or methods, or label budgets) on all tasks whose scores
    share a unit, and the mean of these contrasts."""

    contrasts: tuple[Contrast, ...]  # one for each task

    @property
    def first(self) -> Contrast:
        return self.contrasts[0]

    @property
    def axis(self) -> Axis:
        return self.first.axis

    @property
    def metric(self) -> str:
        """The metric of the first contrast; those of the other contrasts have the same unit."""
        return self.first.metric

    @property
    def num_tasks(self) -> int:
        return len(self.contrasts)

    @property
    def has_one_pretraining_seed(self) -> bool:
        return not self.first.is_tested

    @property
    def of_published(self) -> bool:
        return self.first.of_published

    @cached_property
    def tasks_disagree(self) -> bool:
        """Whether one task has a positive and another a negative effect beyond chance. Each is
        tested at the error rate divided by the number of tasks."""
        alpha = (1 - self.effect.confidence) / self.num_tasks
        clear = [
            c.effect for c in self.contrasts if c.is_tested and (c.effect.p_value or 0) < alpha
        ]
        return len({effect.value > 0 for effect in clear}) == 2

    @cached_property
    def by_size(self) -> list[Contrast]:
        """The contrasts, sorted by the gain of the first side, the largest first."""
        return sorted(self.contrasts, key=lambda c: -merit(c.metric, c.effect.value))


def unit_of(metric: str) -> str:
    """Returns the unit of a metric's scores, or the metric itself if it has none. Scores of the
    same unit can be averaged."""
    return scale_of(metric).unit or metric


def questions(uncorrected: Sequence[Contrast], moderation: Moderation) -> list[Question]:
    """Returns all questions in the order of their axes, with corrected p-values for the questions
    and for their contrasts."""
    members: dict[tuple[object, ...], list[Contrast]] = {}
    for contrast in uncorrected:
        sides = [(c.group, c.method, c.label_budget) for c in (contrast.a, contrast.b)]
        scale = scale_of(contrast.metric)
        alike = unit_of(contrast.metric), scale.lower_is_better, contrast.is_tested
        members.setdefault((contrast.axis, *sides, *alike), []).append(contrast)
    all_questions = []
    for some in members.values():
        effect = some[0].effect
        if len(some) > 1:
            effect = moderation.mean_difference([(c.a.key, c.b.key) for c in some])
        all_questions.append(Question(contrasts=tuple(some), effect=effect, p_holm=None))
    tested = [question for question in all_questions if question.is_tested]
    alpha = 1 - moderation.confidence
    below = [  # a question about one task is the same test as its contrast
        [c.effect.p_value or 0.0 for c in question.contrasts] if question.num_tasks > 1 else []
        for question in tested
    ]
    of_questions, of_contrasts = two_stages(
        [question.effect.p_value or 0.0 for question in tested], below, alpha=alpha
    )
    share = 2 if any(below) else 1
    limit = holm_threshold(of_questions, alpha=alpha, share=share)
    first = Threshold(Family.QUESTIONS, len(tested), limit)
    opened = [
        p
        for question, of_question in zip(of_questions, of_contrasts, strict=True)
        if question < alpha
        for p in of_question
    ]
    second = Threshold(Family.TASKS, len(opened), holm_threshold(opened, alpha=alpha))
    closed = replace(second, p_value=None)
    corrected: dict[Question, Question] = {}
    for question, p_holm, p_values in zip(tested, of_questions, of_contrasts, strict=True):
        threshold = second if p_holm < alpha else closed
        if not p_values:
            p_values, threshold = [p_holm], first
        contrasts = tuple(
            replace(contrast, p_holm=p, threshold=threshold)
            for contrast, p in zip(question.contrasts, p_values, strict=True)
        )
        corrected[question] = replace(question, contrasts=contrasts, p_holm=p_holm, threshold=first)
    return sorted(
        (corrected.get(question, question) for question in all_questions),
        key=lambda question: AXES.index(question.axis),
    )
