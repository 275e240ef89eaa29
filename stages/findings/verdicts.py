"""Verdicts on effects: of a contrast, of a mean over tasks, of a run against a baseline."""

from dataclasses import dataclass
from enum import Enum

from stages.evaluation.statistics import Interval


class Verdict(Enum):
    """The verdict on an effect, as reports/contrasts.csv and the pages spell it."""

    SIGNIFICANT = "significant after Holm correction"
    BEFORE_CORRECTION = "significant before correction only"
    NOT_SIGNIFICANT = "not significant"
    TASKS_DISAGREE = "tasks disagree in sign"  # beyond chance, so that their mean says little
    ONE_SEED = "one pretraining seed: no verdict"
    NO_INTERVAL = "no interval"  # ``effect.basis`` says why


class Family(Enum):
    """A family of tests, which are corrected together."""

    QUESTIONS = "questions"  # effects averaged over tasks
    TASKS = "contrasts on single tasks"  # of the significant questions
    BASELINES = "comparisons with a baseline"


@dataclass(frozen=True)
class Threshold:
    """The limit below which a test's p-value is significant, given the rest of its family."""

    family: Family
    num_tests: int
    p_value: float | None  # None where no p-value is small enough: the question is not significant


@dataclass(frozen=True, kw_only=True)
class Tested:
    """An effect with its test. It is significant if its interval excludes zero and ``p_holm`` is
    small."""

    effect: Interval
    p_holm: float | None  # corrected for the tests of its family; None if untested
    threshold: Threshold | None = None  # None without a corrected p-value

    @property
    def has_one_pretraining_seed(self) -> bool:
        """Whether a side was pretrained here with one seed: another might give another result."""
        raise NotImplementedError

    @property
    def of_published(self) -> bool:
        """Whether a side is a published checkpoint, which has no seeds: the verdict is about this
        checkpoint, not about how it was made."""
        raise NotImplementedError

    @property
    def tasks_disagree(self) -> bool:
        return False

    @property
    def is_tested(self) -> bool:
        return self.effect.variance is not None and not self.has_one_pretraining_seed

    @property
    def significant_before_correction(self) -> bool:
        """Whether the interval excludes zero."""
        return self.is_tested and self.effect.excludes_zero

    @property
    def significant(self) -> bool:
        """Whether the effect stays significant after Holm correction."""
        is_small = self.p_holm is not None and self.p_holm < 1 - self.effect.confidence
        return self.significant_before_correction and is_small

    @property
    def verdict(self) -> Verdict:
        if self.effect.variance is None:
            return Verdict.NO_INTERVAL
        if self.has_one_pretraining_seed:
            return Verdict.ONE_SEED
        if self.tasks_disagree:
            return Verdict.TASKS_DISAGREE
        if not self.significant_before_correction:
            return Verdict.NOT_SIGNIFICANT
        return Verdict.SIGNIFICANT if self.significant else Verdict.BEFORE_CORRECTION
