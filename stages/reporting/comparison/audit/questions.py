"""The audit: what a sceptical reviewer would ask of a study, answered from its own records."""

from collections import Counter
from collections.abc import Callable, Sequence

from stages.reporting.comparison.audit import data, evidence, training
from stages.reporting.comparison.audit.check import Check
from stages.reporting.comparison.audit.shared_defaults import shared_defaults
from stages.reporting.comparison.results import Results

QUESTIONS: tuple[Callable[[Results], Check], ...] = (
    training.probes,
    training.end_of_finetuning,
    training.end_of_pretraining,
    training.finetuning_rates,
    training.pretraining_rates,
    training.tries,
    shared_defaults,
    data.labelled_rows,
    data.validation_labels,
    data.cut,
    data.read_at,
    data.overlap,
    evidence.pretraining_seeds,
    evidence.power,
    evidence.identical,
    evidence.missing_comparisons,
    evidence.confounds,
    evidence.baselines,
)


def audit(results: Results) -> list[Check]:
    return [question(results) for question in QUESTIONS]


def summary(checks: Sequence[Check]) -> str:
    """``Audit: 17 questions, 9 without objection, 6 with an objection, 2 that do not apply``."""
    number = Counter(check.mark for check in checks)
    parts = [
        f"{number['none']} without objection",
        f"{number['objection']} with an objection",
        f"{number['does not apply']} that {_verb(number['does not apply'])} not apply",
    ]
    return f"Audit: {len(checks)} questions, " + ", ".join(parts)


def _verb(number: int) -> str:
    return "does" if number == 1 else "do"
