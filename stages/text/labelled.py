"""Labelled rows: what those of each kind of task hold, and a row's right answer as text.

Readable without torch, since what prepares, scores and fits a baseline has no need of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kind:
    """What a row of a task holds. A test row lacks the target until it is scored."""

    inputs: tuple[str, ...]
    target: str
    metrics: tuple[str, ...]  # the first is the one a trial is compared by unless the task says
    optional: tuple[str, ...] = ()  # further inputs
    has_classes: bool = True  # its answers are of labels that train has; else they are free text


KINDS = {
    "classification": Kind(("text",), "label", ("macro_f1", "accuracy"), optional=("text_pair",)),
    "tagging": Kind(("words",), "tags", ("entity_f1", "word_accuracy")),
    "seq2seq": Kind(("text",), "target", ("bleu", "chrf", "rouge_l"), has_classes=False),
}


def metrics_of(task: Mapping[str, Any]) -> tuple[str, str]:
    """What the trials of an entry ``task:`` are compared by, and the metric shown beside it."""
    first, second, *_ = KINDS[task["name"]].metrics
    chosen = task.get("metric", first)
    return chosen, (first if chosen == second else second)


def inputs_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that a prediction is made from."""
    columns = {column for kind in KINDS.values() for column in (*kind.inputs, *kind.optional)}
    return {column: value for column, value in row.items() if column in columns}


def answer(row: Mapping[str, Any]) -> str:
    """The right answer, written as a prediction is: a label, words' tags joined by blanks, or the
    text that is to be written."""
    if "target" in row:
        return row["target"]
    return " ".join(row["tags"]) if "tags" in row else row["label"]
