"""Every combination of a task, an architecture and a method fits a small set, or says why it has no
trials. The combinations are the cells of the table in the README."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from stages.commands.fits import AS_TEXT, Combination, cells
from stages.core.seeding import stream, torch_stream
from stages.kinds._text_form import label_words
from stages.methods._method import Predictor, SolvedMethod
from stages.models._heads import ModelWithHead, initialise_head
from stages.tasks._task import TASKS, Task
from stages.tasks._text_to_text import TextToText
from stages.tasks._writing import Writing
from tests.methods.test_methods import (
    PREDICTED,
    ROWS,
    check_fit,
    check_predictions,
    grown,
    method_of,
)
from tests.small import small_model, small_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

MAX_TOKENS = 48
LABELS = {"classification": ["a", "b"], "multi_label": ["a", "b", "c"], "tagging": ["B", "O"]}
SETTINGS = {
    "seq2seq": {"max_target_tokens": 12},
    "span_qa": {"stride": 4, "max_question_tokens": 8},
}
FITTING = [cell for cell in cells() if cell.reason() is None]
TRAINED = [cell for cell in FITTING if cell.method not in ("in_context", "none")]
# Methods that train few weights need more steps and a higher rate.
SLOW: dict[str, dict[str, Any]] = {
    "bitfit": {"num_steps": 80, "lr": 0.1},
    "prefix": {"num_steps": 80, "lr": 0.1},
    "prompt": {"num_steps": 80, "lr": 0.03},
}


def name_of(cell: Combination) -> str:
    return "-".join((cell.task.replace(AS_TEXT, "_as_text"), cell.architecture, cell.method))


def rows_of(kind: str) -> Iterator[dict[str, Any]]:
    for row in ROWS:
        text, words = row["text"], row["words"]
        answers = [{"text": words[1], "answer_start": len(words[0]) + 1}]
        yield {"id": row["id"]} | {
            "classification": {"text": text, "label": row["label"]},
            "language_modelling": {"text": text},
            "multi_label": {"text": text, "labels": {"a": ["a"], "b": ["b", "c"]}[row["label"]]},
            "multiple_choice": {
                "text": text,
                # Two or three choices; the right one has the same words in all rows, in two places.
                "choices": [
                    ["class class class", "call"],
                    ["call", "class class class", "function"],
                ][row["label"] == "a"],
                "label": str(int(row["label"] == "a")),
            },
            # Two texts with three targets each, so that no model fits them without an error.
            "regression": {
                "text": "the class" if row["label"] == "a" else "a function call",
                "target": (row["label"] == "a") + 0.3 * (int(row["id"]) % 3),
            },
            "seq2seq": {"text": text, "target": " ".join(reversed(words))},
            "span_qa": {"question": words[0], "context": text, "answers": answers},
            "tagging": {"words": words, "tags": row["tags"]},
        }[kind]


def built(cell: Combination) -> tuple[Task, ModelWithHead]:
    entry, labels = {"name": cell.kind, **SETTINGS.get(cell.kind, {})}, LABELS.get(cell.kind, [])
    task: Task = TASKS.build(entry, labels, small_tokenizer(), MAX_TOKENS, where="task")
    if cell.text_to_text:
        task = TextToText("task", {"task": entry, "labels": labels}, task)
    backbone = small_model(cell.architecture)
    if not isinstance(task, Writing) and not task.scores_text:
        backbone.drop_output_layers()
    if backbone.is_transformer:
        grown(backbone)
    head = task.head(backbone)
    initialise_head(head, generator=torch_stream(1, "head"))
    return task, ModelWithHead(backbone, head)


@pytest.mark.slow
@pytest.mark.parametrize("cell", TRAINED, ids=name_of)
def test_method_fits_a_small_set_and_changes_its_own_weights_alone(cell) -> None:
    method = method_of(cell.method)
    task, model = built(cell)
    method.apply(model, generator=torch_stream(2, "method"))
    examples = task.encode([*rows_of(cell.kind)])
    if isinstance(method, SolvedMethod):
        method.remember(model, [task.collate(examples, rngs=[])])
    is_predicted = cell.task == "classification"
    settings: dict[str, Any] = {"enough": PREDICTED} if is_predicted else {}
    check_fit(task, model, examples, method, **settings, **SLOW.get(cell.method, {}))
    if is_predicted:
        check_predictions(task, model, examples)


@pytest.mark.parametrize("cell", [cell for cell in FITTING if cell not in TRAINED], ids=name_of)
def test_method_without_training_predicts_every_row_and_changes_no_weight(cell) -> None:
    rows = [*rows_of(cell.kind)]
    method = method_of(cell.method)
    task, model = built(cell)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    method.apply(model, generator=torch_stream(2, "method"))
    predictor: Predictor = task
    if method.prompts:
        words = label_words(LABELS["classification"], ())
        predictor = method.predictor(
            words, small_tokenizer(), MAX_TOKENS, rows, rng=stream(1, "shots")
        )
    examples = predictor.encode(rows)
    with torch.no_grad():
        parts = predictor.predict(model.eval(), predictor.collate(examples, rngs=[]), examples)
    number = len(examples) // len(rows)
    predictions = [
        predictor.combine(row, parts[i * number : (i + 1) * number]) for i, row in enumerate(rows)
    ]
    assert all(isinstance(prediction, str) for prediction in predictions)
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    assert not any(weight.requires_grad for weight in model.parameters())


@pytest.mark.parametrize("cell", [c for c in cells() if c not in FITTING], ids=name_of)
def test_reason_says_why_a_combination_does_not_fit(cell) -> None:
    reason = cell.reason()
    assert reason is not None and any(
        said in reason
        for said in (
            " only, not ",
            "needs a causal model",
            "needs a generative model",
            "has prompts of its own",
            "requires a task head",
            "trains nothing, and",
            "text_to_text is not available for",
        )
    )
