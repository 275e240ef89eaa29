"""Labelled rows: what those of each kind of task hold, and a row's right answer as text.

Readable without torch, since what prepares, scores and fits a baseline has no need of it.
"""

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


@dataclass(frozen=True)
class Kind:
    """What a row of a task holds. A test row lacks the target until it is scored, unless a text is
    its own."""

    inputs: tuple[str, ...]
    target: str
    metrics: tuple[str, ...]  # the first is the one a trial is compared by unless the task says
    optional: tuple[str, ...] = ()  # further inputs
    has_classes: bool = True  # its answers are of labels that train has; else they are free text

    @property
    def is_own_answer(self) -> bool:
        """The text itself is what is predicted."""
        return self.target in self.inputs


KINDS = {
    "classification": Kind(("text",), "label", ("macro_f1", "accuracy"), optional=("text_pair",)),
    "tagging": Kind(("words",), "tags", ("entity_f1", "word_accuracy")),
    "span_qa": Kind(
        ("question", "context"), "answers", ("squad_f1", "exact_match"), has_classes=False
    ),
    "language_modelling": Kind(
        ("text",), "text", ("bits_per_byte", "word_perplexity"), has_classes=False
    ),
    "seq2seq": Kind(("text",), "target", ("bleu", "chrf", "rouge_l"), has_classes=False),
}


def metrics_of(task: Mapping[str, Any]) -> tuple[str, str]:
    """What the trials of an entry ``task:`` are compared by, and the metric shown beside it."""
    first, second, *_ = KINDS[task["name"]].metrics
    chosen = task.get("metric", first)
    return chosen, (first if chosen == second else second)


def rows_in_budget(budget: int | str, rows: int, *, task: str) -> int:
    """How many of train's ``rows`` a label budget is; raises ValueError if there are fewer."""
    number = rows if budget == "all" else int(budget)
    if number > rows:
        raise ValueError(f"finetune.label_budgets: {number} labels, but tasks.{task} has {rows}")
    return number


def inputs_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that a prediction is made from."""
    columns = {column for kind in KINDS.values() for column in (*kind.inputs, *kind.optional)}
    return {column: value for column, value in row.items() if column in columns}


def answer(row: Mapping[str, Any]) -> str:
    """The right answer, written as a prediction is: a label, words' tags joined by blanks, or the
    text that is to be written.

    Of a question it is a JSON list of the texts that are right, and a prediction is one of them;
    "[]" where there is no answer, which is predicted as "". Of a text that is its own answer, how
    many bytes and words its bits are to be divided by.
    """
    if "answers" in row:
        return json.dumps([one["text"] for one in row["answers"]], ensure_ascii=False)
    if "tags" in row:
        return " ".join(row["tags"])
    if "label" in row:
        return row["label"]
    if "target" in row:
        return row["target"]
    return f"{len(row['text'].encode())} {len(row['text'].split())}"


def plain_text(text: str) -> str:
    """The text in NFKC with a blank for all white space: what every tokenizer can tell, so that the
    bits of one buy no more than those of another."""
    return " ".join(unicodedata.normalize("NFKC", text).split())
