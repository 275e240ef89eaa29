"""The facts of a study that the report, the terminal and MLflow read.

Facts are numbers, names and enums, without any sentence. ``Results`` (``findings.results``) has
them: ``effects``, ``interactions``, ``answers``, ``contrasts``, ``audit`` and ``scores_table``, all
computed once.

Scores and differences are in the unit of their metric as it is stored (an accuracy of 0.93, not
93); ``metrics.scale_of`` says how a metric is shown. A difference is the second side less the first
(b less a). "Model" is an entry that is compared; a choice is a ``Cell``: the trials of a model or a
baseline with a method on one task.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Literal

from stages.evaluation.metrics import unit_of
from stages.evaluation.statistics import Estimate, Interval

if TYPE_CHECKING:
    from stages.findings.cells import Cell

MAX_ERRORS = 3
AxisName = Literal[
    "architecture",  # with its objective
    "objective",
    "size",
    "training set",
    "amount of text",
    "pretrained",
    "published",
    "checkpoint",  # of two published ones
    "tokenizer",
    "parent",
    "optimizer",
    "training",
    "method",
    "label budget",
]


class Verdict(Enum):
    """What a test says about a difference, as the tables spell it."""

    SIGNIFICANT = "significant"  # after the correction for its family
    UNSURE = "significant before correction only"
    NOT_SIGNIFICANT = "not significant"
    ONE_SEED = "one pretraining seed: no verdict"
    NOT_TESTED = "not tested"  # no interval, or not in a tested family


@dataclass(frozen=True)
class Difference:
    """What also differs between the two sides of a comparison.

    ``name`` is a setting of params.yaml ("training.lr"), an amount ("parameters", "targets per
    step") or a fault of training ("not converged"); the values are those of a and b.
    """

    name: str
    a: object
    b: object


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A difference with its test."""

    estimate: Estimate
    df: float | None  # 0 or None without an interval
    p: float | None  # None without an interval
    p_holm: float | None = None  # corrected for its family
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class AxisClaim(Claim):
    """A difference between two levels of an axis: b less a."""

    axis: AxisName
    level_a: str
    level_b: str
    metric: str  # of the first task; the tasks of a claim share its unit

    @property
    def family(self) -> tuple[object, ...]:
        """The main effect that a contrast belongs to: its axis, levels and unit of scores."""
        return self.axis, self.level_a, self.level_b, unit_of(self.metric)


@dataclass(frozen=True, kw_only=True)
class MainEffect(AxisClaim):
    """The mean difference over all matched pairs, tasks and seeds. The main effects of a study are
    a family."""

    tasks: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]  # names of the models (a, b) that are matched
    num_pairs: int  # matched cells: pairs of models x tasks x methods x label budgets
    num_seeds: int  # fewest seeds of a matched model
    also_differs: tuple[Difference, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Interaction(AxisClaim):
    """The effect of the axis at level b of a second axis, less its effect at level a. The
    interactions of a study are a family."""

    second_axis: AxisName
    second_level_a: str
    second_level_b: str
    at_a: Estimate  # the effect of the first axis at each level of the second
    at_b: Estimate
    num_pairs: int  # matched quadruples of cells


@dataclass(frozen=True, kw_only=True, eq=False)
class Contrast(AxisClaim):
    """A pair of cells that differ in one axis, on one task. The second stage: the contrasts of
    significant main effects are a family."""

    estimate: Interval
    a: "Cell"
    b: "Cell"
    also_differs: tuple[Difference, ...]


class LeadCertainty(Enum):
    """How sure it is that the model chosen on validation rows is better than the best baseline."""

    LEADS = "ahead of the baselines"
    UNSURE = "model first, ahead before correction only"
    OPEN = "model first, a baseline may be as good"
    BASELINE = "baseline first"
    BASELINES_ONLY = "a baseline, since no model is within the limits"
    UNTESTED = "not tested against a baseline"


@dataclass(frozen=True, kw_only=True)
class Lead(Claim):
    """The difference of the chosen model less the chosen baseline on test rows. The leads on all
    tasks and label budgets are a family."""

    is_ahead: bool  # the model has the better score, or costs less at an equal one

    @property
    def certainty(self) -> LeadCertainty:
        if not self.is_ahead:
            return LeadCertainty.BASELINE
        if self.p_holm is None:
            return LeadCertainty.UNTESTED
        certainties = {
            Verdict.SIGNIFICANT: LeadCertainty.LEADS,
            Verdict.UNSURE: LeadCertainty.UNSURE,
        }
        return certainties.get(self.verdict, LeadCertainty.OPEN)


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How far a choice's probabilities can be trusted, as means over its trials."""

    mean_probability: float
    accuracy: float
    calibration_error: float
    calibrated_error: float | None  # after temperature scaling; None if a trial has none
    answered: Mapping[float, float]  # stated accuracy -> share of rows answered


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What to use for a task at a label budget.

    ``model`` and ``baseline`` are the best on validation rows, among those within the study's
    limits if there are any. ``recommended`` is the one of the two that is better on test rows.
    """

    task: str
    label_budget: str
    num_labels: int
    metric: str
    recommended: "Cell"
    model: "Cell | None"
    baseline: "Cell | None"
    lead: Lead | None  # None without a model or without a baseline
    best_on_test: "Cell"  # of all choices, also of those beyond the study's limits
    next_best: "Cell | None"  # of the other models and baselines, by score
    cheapest_as_good: "Cell | None"  # not significantly worse, fewest FLOPs of a trial; or None
    smaller: "Cell | None"  # the best of the models with fewer parameters
    calibration: Calibration | None
    confusion: tuple["Confusion", ...]  # of the recommended choice
    violations: tuple[str, ...]  # the limits of ``answer:`` that ``best_on_test`` exceeds
    num_seeds: int  # of ``recommended``

    @property
    def certainty(self) -> LeadCertainty:
        if self.lead is not None:
            return self.lead.certainty
        return LeadCertainty.BASELINES_ONLY if self.model is None else LeadCertainty.UNTESTED

    @property
    def confused(self) -> list["Confusion"]:
        """The commonest errors of the recommended choice."""
        errors = [pair for pair in self.confusion if pair.answer != pair.prediction]
        errors.sort(key=lambda pair: (-pair.number, pair.answer, pair.prediction))
        return errors[:MAX_ERRORS]


class Mark(Enum):
    """The result of an audit question."""

    OBJECTION = "objection"
    NONE = "none"
    NOT_ASKED = "does not apply"


class AuditQuestion(Enum):
    """What the audit asks, in the order of the report."""

    SHARED_DEFAULTS = "shared defaults"  # which one could decide the result?
    CONVERGENCE = "convergence"  # were models trained long enough?
    RATES = "learning rates"  # are the kept rates inside the range tried?
    TRIES = "tries"  # did all models try equally much on validation rows?
    LABELLED_ROWS = "labelled rows"  # are they drawn anew, and few of them for validation?
    INPUT = "input"  # are texts cut, or labels read before the end of their word?
    TEST_ROWS = "test rows"  # near duplicates of training rows
    OVERLAP = "overlap"  # test rows in pretraining text
    SEEDS = "seeds"  # was every model pretrained more than once?
    POWER = "power"  # how small a difference could be found?
    CONFOUNDS = "confounds"  # do matched models differ in something else?
    BASELINES = "baselines"  # does a baseline do as well?


@dataclass(frozen=True)
class AuditAnswer:
    """The audit's answer to one question.

    ``values`` are the numbers and names that the answer states; its keys are listed in the
    docstring of the question's function in ``findings.audit``. ``details`` are (name, value) pairs
    that the answer lists.
    """

    question: AuditQuestion
    mark: Mark
    values: Mapping[str, float | int | str | bool | None] = field(default_factory=dict)
    details: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Score:
    """One number of the table of scores."""

    estimate: Estimate
    num_trials: int
    as_good: bool  # not significantly worse than the best of its column
    lowest_rank: int | None  # the best rank that it may have; None if unknown
    highest_rank: int | None


@dataclass(frozen=True, kw_only=True)
class ScoreRow:
    """A model with a method, or a baseline, at one label budget, on all tasks."""

    model: str
    method: str
    label_budget: str
    is_baseline: bool
    recommended_for: tuple[str, ...]  # tasks
    scores: Mapping[str, Score]  # by task; a task without trials is absent
    mean: float | None  # over tasks; None if a task is absent or units differ
    num_params: int | None
    finetune_s: float | None  # means over tasks
    latency_s: float | None


@dataclass(frozen=True)
class ScoreTable:
    """All scores, sorted by mean (the best first), rows without a mean at the end."""

    tasks: tuple[str, ...]
    metrics: Mapping[str, str]  # by task
    rows: tuple[ScoreRow, ...]


@dataclass(frozen=True, kw_only=True)
class ModelCost:
    """What a model cost, as means over its seeds; None is unknown (published checkpoints)."""

    model: str
    pretrain_flops: float | None  # with parents and teachers
    pretrain_s: float | None
    finetune_flops: float | None  # of one trial
    finetune_s: float | None
    latency_s: float | None
    peak_memory_bytes: int | None
    weights_bytes: int | None


@dataclass(frozen=True)
class Confusion:
    """How many rows (or words) of one class a choice gives a class, over all of its trials."""

    task: str
    answer: str  # the right class
    prediction: str
    number: int
    share: float  # of the rows with the right class


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """An estimate of each model on a task, and its rank correlation with the scores."""

    task: str
    estimate: str
    values: Mapping[str, float]  # model -> mean over its checkpoints
    tau: float | None  # weighted Kendall's tau (Vigna 2015); None for fewer than four models
