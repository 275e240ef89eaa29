"""Finds the faults of params.yaml: a list of rules over the resolved study."""

from collections.abc import Iterator

from stages.checking.inputs import (
    baseline_faults,
    corpus_faults,
    draw_faults,
    task_faults,
    tokenizer_faults,
)
from stages.checking.methods import fit_faults, length_faults
from stages.checking.outlines import Outlines, outline_runs
from stages.checking.runs import budget_faults, repetition_faults, runs_faults
from stages.core.params import Params
from stages.evaluation.records import CLASSICAL


def find_faults(params: Params) -> Iterator[str]:
    """Yields one line for each fault, beginning with the fault's path in params.yaml."""
    outlines = outline_runs(params)
    for rule in RULES:
        yield from dict.fromkeys(rule(params, outlines))


def _finetune_faults(params: Params, outlines: Outlines) -> Iterator[str]:
    if CLASSICAL in params.finetune.methods:
        yield f"finetune.methods.{CLASSICAL}: is reserved for baselines in reports; rename it"
    for name in ("label_budgets", "seeds"):
        values = getattr(params.finetune, name)
        if len(set(values)) < len(values):
            yield f"finetune.{name}: must not repeat a value, not {values}"


RULES = (
    corpus_faults,
    tokenizer_faults,
    task_faults,
    draw_faults,
    runs_faults,
    repetition_faults,
    length_faults,
    budget_faults,
    fit_faults,
    baseline_faults,
    _finetune_faults,
)
