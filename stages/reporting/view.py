"""What tables, pictures and texts of the report share: names, order and marks."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from stages.core.params import NONE
from stages.evaluation.metrics import scale_of
from stages.evaluation.records import ScoredTrial, budget_order
from stages.findings.cells import Cell
from stages.findings.facts import (
    Answer,
    AuditAnswer,
    AuditQuestion,
    AxisName,
    MainEffect,
    Mark,
    ScoreRow,
)
from stages.findings.results import Results
from stages.reporting.formats import Labels, thousands
from stages.reporting.svg import COLOURS

MAX_ROWS = 25  # of models, in pictures and in the first table


@dataclass(frozen=True, eq=False)
class View:
    """A study's results at the largest label budget, which the report shows first."""

    results: Results
    named: Mapping[str, str] = field(default_factory=dict)  # display names of keys

    @cached_property
    def labels(self) -> Labels:
        return Labels(self.named)

    @property
    def tasks(self) -> tuple[str, ...]:
        return self.results.scores_table.tasks

    @property
    def metrics(self) -> Mapping[str, str]:
        return self.results.scores_table.metrics

    @cached_property
    def metric(self) -> str:
        """The metric of the first task, in whose unit means over tasks are shown."""
        return self.metrics[self.tasks[0]]

    @cached_property
    def budgets(self) -> list[str]:
        """All label budgets, the smallest first."""
        return sorted(
            {row.label_budget for row in self.results.scores_table.rows}, key=budget_order
        )

    @property
    def budget(self) -> str:
        return self.budgets[-1]

    @cached_property
    def models(self) -> list[ScoreRow]:
        """The rows of models, sorted by mean."""
        return [row for row in self.at(self.budget) if not row.is_baseline]

    def at(self, budget: str) -> list[ScoreRow]:
        return [row for row in self.results.scores_table.rows if row.label_budget == budget]

    @cached_property
    def answers(self) -> list[Answer]:
        """The answer to each task."""
        by_task = {a.task: a for a in self.results.answers if a.label_budget == self.budget}
        return [by_task[task] for task in self.tasks if task in by_task]

    @cached_property
    def baseline_mean(self) -> float | None:
        """The mean over tasks of the baseline that is first on validation rows."""
        baselines = [answer.baseline for answer in self.answers]
        units = {scale_of(metric) for metric in self.metrics.values()}
        if None in baselines or len(baselines) < len(self.tasks) or len(units) > 1:
            return None
        return sum(choice.score.value for choice in baselines if choice) / len(baselines)

    @cached_property
    def winner(self) -> Cell | None:
        """The model that is recommended for most tasks; None if no model is."""
        models = [a.recommended for a in self.answers if not a.recommended.is_baseline]
        most = Counter((choice.model, choice.method) for choice in models).most_common(1)
        return next((c for c in models if (c.model, c.method) == most[0][0]), None)

    @property
    def has_published(self) -> bool:
        return any(entry.is_public for entry in self.results.params.models.values())

    @cached_property
    def about_effects(self) -> bool:
        """Whether the study asks what matters, more than which model to use: it compares no
        published checkpoint, and its models differ in more than whether they were pretrained."""
        return not self.has_published and any(e.axis not in WITHIN for e in self.results.effects)

    @property
    def num_doubtful(self) -> int:
        """The number of doubtful labels in files of the user's own."""
        own = (task for task, e in self.results.params.tasks.items() if e.source["name"] == "files")
        return sum(len(self.results.doubtful_labels.get(task, ())) for task in own)

    @cached_property
    def architectures(self) -> dict[str, str]:
        """Architectures in the order of params.yaml, with the classes of their marks."""
        names = dict.fromkeys(trial.architecture for trial in self._first.values())
        return {name: f"c{i % len(COLOURS)}" for i, name in enumerate(names)}

    @cached_property
    def _first(self) -> dict[str, ScoredTrial]:
        """A trial of each model, in the order of params.yaml."""
        first = {trial.model: trial for trial in reversed(self.results.trials)}
        return {name: first[name] for name in self.results.params.models if name in first}

    def look(self, model: str) -> str:
        """Returns the classes of a model's mark: colour by architecture, hollow from scratch."""
        if model not in self._first:
            return "soft"
        trial = self._first[model]
        return self.architectures[trial.architecture] + " hollow" * (trial.objective == NONE)

    @cached_property
    def several_methods(self) -> bool:
        return (
            len({row.method for row in self.results.scores_table.rows if not row.is_baseline}) > 1
        )

    def name(self, choice: ScoreRow | Cell) -> str:
        """Returns the display name of a model, with its method if the study compares methods."""
        method = f", {self.labels[choice.method]}" if self.several_methods else ""
        return self.labels[choice.model] + ("" if choice.is_baseline else method)

    def level(self, axis: AxisName, level: str) -> str:
        """Returns a level of an axis as a reader knows it."""
        if axis in LEVELS:
            return LEVELS[axis][level]
        if axis == "label budget":
            return f"{thousands(level)} labels"
        return self.labels[level]

    def upwards(self, effect: MainEffect) -> tuple[str, str, int]:
        """Returns both levels, the better one first unless their axis has an order of its own, and
        the sign of the difference between them."""
        a, b = (self.level(effect.axis, level) for level in (effect.level_a, effect.level_b))
        worse = (effect.estimate.value < 0) != scale_of(effect.metric).lower_is_better
        return (a, b, -1) if worse and effect.axis not in ORDERED else (b, a, 1)

    def compared(self, effect: MainEffect) -> str:
        """Returns the two levels; numbers of weights and names of texts with what they are."""
        first, second, _ = self.upwards(effect)
        axis = f"{effect.axis}: " if effect.axis in ("size", "training set") else ""
        return f"{axis}{first} vs. {second}"

    @cached_property
    def surest(self) -> list[MainEffect]:
        """The main effects, those between models first, then the smallest p, then the largest."""

        def key(e: MainEffect) -> tuple[object, ...]:
            within = e.axis in ("method", "label budget")
            return (within, e.p is None, e.p or 0.0, -abs(e.estimate.value))

        return sorted(self.results.effects, key=key)

    @cached_property
    def model_names(self) -> list[str]:
        return list(dict.fromkeys(row.model for row in self.models))

    @property
    def most_seeds(self) -> int:
        """The most pretraining or fine-tuning seeds of a model; baselines have one."""
        cells = [cell for cell in self.results.cells if not cell.is_baseline]
        kinds = ("pretrain_seed", "finetune_seed")
        numbers = (len({getattr(t, kind) for t in cell.trials}) for cell in cells for kind in kinds)
        return max(numbers, default=1)

    @cached_property
    def by_recommended(self) -> list[list[Answer]]:
        """The answers with the same recommended choice, the choice of most tasks first."""
        groups: dict[tuple[str, str], list[Answer]] = {}
        for answer in self.answers:
            key = (answer.recommended.model, answer.recommended.method)
            groups.setdefault(key, []).append(answer)
        return sorted(groups.values(), key=lambda group: -len(group))

    @cached_property
    def objections(self) -> list[AuditAnswer]:
        return [answer for answer in self.results.audit if answer.mark is Mark.OBJECTION]

    @cached_property
    def reliable(self) -> list[AuditAnswer]:
        """At most five answers of the audit: what a reader asks first, then objections."""
        by_question = {a.question: a for a in self.results.audit if a.mark is not Mark.NOT_ASKED}
        in_order = [by_question[question] for question in RELIABLE if question in by_question]
        always = [a for a in in_order if a.question in RELIABLE[:2]]
        others = [a for a in in_order if a.mark is Mark.OBJECTION and a not in always]
        return [*always, *others][:MAX_RELIABLE]

    @cached_property
    def overconfident(self) -> list[Answer]:
        """A list of one: the answer whose mean probability is farthest from the accuracy."""
        known = [(a.calibration, a) for a in self.answers if a.calibration]
        worst = sorted(known, key=lambda c: -abs(c[0].mean_probability - c[0].accuracy))
        return [answer for _, answer in worst[:1]]


LEVELS = {
    "pretrained": {"no": "from scratch", "yes": "pretrained"},
    "published": {"no": "random weights", "here": "pretrained here", "yes": "published"},
}
ORDERED = {*LEVELS, "size", "amount of text", "label budget"}
WITHIN = {*LEVELS, "method", "label budget"}
MAX_RELIABLE = 5
# What a reader asks first of a result.
RELIABLE = (
    *(AuditQuestion.SEEDS, AuditQuestion.POWER, AuditQuestion.SHARED_DEFAULTS),
    *(AuditQuestion.CONFOUNDS, AuditQuestion.OVERLAP, AuditQuestion.TEST_ROWS),
    *(AuditQuestion.RATES, AuditQuestion.CONVERGENCE, AuditQuestion.INPUT),
)
