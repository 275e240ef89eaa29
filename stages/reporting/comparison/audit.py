"""The audit: what a sceptical reviewer would ask of a study, answered from its own records."""

from collections import Counter
from collections.abc import Callable, Sequence

from stages.reporting.comparison import audit_data, audit_evidence, audit_training
from stages.reporting.comparison.audit_check import Check
from stages.reporting.comparison.results import Results

QUESTIONS: tuple[Callable[[Results], Check], ...] = (
    audit_training.probes,
    audit_training.end_of_finetuning,
    audit_training.end_of_pretraining,
    audit_training.finetuning_rates,
    audit_training.pretraining_rates,
    audit_training.tries,
    audit_data.labelled_rows,
    audit_data.validation_labels,
    audit_data.cut,
    audit_data.read_at,
    audit_data.overlap,
    audit_evidence.pretraining_seeds,
    audit_evidence.power,
    audit_evidence.identical,
    audit_evidence.missing_comparisons,
    audit_evidence.confounds,
    audit_evidence.baselines,
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
