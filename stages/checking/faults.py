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
from stages.checking.models import budget_faults, models_faults, repetition_faults
from stages.checking.outlines import outline_models
from stages.core.params import Params

RULES = (
    *(corpus_faults, tokenizer_faults, task_faults, draw_faults, models_faults, repetition_faults),
    *(length_faults, budget_faults, fit_faults, baseline_faults),
)


def find_faults(params: Params) -> Iterator[str]:
    """Yields one line for each fault, beginning with the fault's path in params.yaml."""
    outlines = outline_models(params)
    for rule in RULES:
        yield from dict.fromkeys(rule(params, outlines))
