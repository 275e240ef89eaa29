"""Every task, as it is and as text, is learnt by fine-tuning, and so is every family; that every
method trains its own weights of every family is tested in tests/methods."""

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import pytest
import torch

from stages.core.seeding import torch_stream
from stages.methods._method import METHODS
from stages.models._heads import ModelWithHead, initialise_head
from stages.tasks._task import TASKS, Task
from stages.tasks._text_form import TextToText, Writing
from stages.training.device import Device
from stages.training.finetuning import FinetuningData
from stages.training.loop import mean_loss, train
from stages.trials.compatibility import incompatibility
from tests.small import FAMILIES, small_model, small_schedule, small_tokenizer

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("one_thread")]

MAX_TOKENS = 48
CPU = Device("cpu", "float32", compile=False, threads=1)
ROWS = [
    {"id": str(i), "text": text, "label": label, "words": text.split(), "tags": tags.split()}
    for i, (text, label, tags) in enumerate(
        [
            ("the class statement", "a", "O B O"),
            ("a function call", "b", "O O B"),
            ("this class has a method", "a", "O B O O O"),
            ("call the function", "b", "B O O"),
            ("classes have classes", "a", "O O O"),
            ("functions call functions", "b", "O B O"),
        ]
    )
]
LABELS = {"classification": ["a", "b"], "multi_label": ["a", "b", "c"], "tagging": ["B", "O"]}
SETTINGS = {
    "seq2seq": {"max_target_tokens": 12},
    "span_qa": {"stride": 4, "max_question_tokens": 8},
}
FULL = METHODS.build({"name": "full"}, where="method")


class Cell(NamedTuple):
    """A task (as it is, or as text) and a family that go together."""

    kind: str
    text_to_text: bool
    family: str


def fitting() -> Iterator[Cell]:
    """Yields combinations that go together, one for each new task and each new family."""
    models = {family: small_model(family) for family in FAMILIES}
    covered = set[Any]()
    for cell in map(Cell._make, product(TASKS.names(), (False, True), FAMILIES)):
        task, model = TASKS.find(cell.kind, where="task"), models[cell.family]
        reason = incompatibility(FULL, task, cell.kind, model, text_to_text=cell.text_to_text)
        covers = {cell[:2], cell.family}
        if reason is None and not covers <= covered:
            covered |= covers
            yield cell


def rows_of(kind: str) -> Iterator[dict[str, Any]]:
    for row in ROWS:
        text, words, is_first = row["text"], row["words"], row["label"] == "a"
        answers = [{"text": words[1], "answer_start": len(words[0]) + 1}]
        choices = ["call", "class class class", "function"]  # the second is right in all rows
        yield {"id": row["id"]} | {
            "classification": {"text": text, "label": row["label"]},
            "language_modelling": {"text": text},
            "multi_label": {"text": text, "labels": ["a"] if is_first else ["b", "c"]},
            "multiple_choice": {
                "text": text,
                "choices": choices if is_first else choices[1::-1],
                "label": str(int(is_first)),
            },
            # Two texts with three targets each, so that no model fits them without an error.
            "regression": {
                "text": "the class" if is_first else "a function call",
                "target": is_first + 0.3 * (int(row["id"]) % 3),
            },
            "seq2seq": {"text": text, "target": " ".join(reversed(words))},
            "span_qa": {"question": words[0], "context": text, "answers": answers},
            "tagging": {"words": words, "tags": row["tags"]},
        }[kind]


def built(cell: Cell) -> tuple[Task, ModelWithHead]:
    entry, labels = {"name": cell.kind, **SETTINGS.get(cell.kind, {})}, LABELS.get(cell.kind, [])
    task: Task = TASKS.build(entry, labels, small_tokenizer(), MAX_TOKENS, where="task")
    if cell.text_to_text:
        task = TextToText("task", {"task": entry, "labels": labels}, task)
    backbone = small_model(cell.family)
    if not (isinstance(task, Writing) or task.scores_text):
        backbone.drop_output_layers()
    if backbone.architecture != "bilstm":  # so that states depend on other tokens
        with torch.no_grad():
            for weight in backbone.parameters():
                weight.mul_(6 if weight.dim() >= 2 else 1)
    head = task.head(backbone)
    initialise_head(head, generator=torch_stream(1, "head"))
    return task, ModelWithHead(backbone, head)


def test_every_task_and_family_learns_a_small_set() -> None:
    cells = [*fitting()]
    assert {cell.kind for cell in cells} == {*TASKS.names()}
    assert {cell.family for cell in cells} == {*FAMILIES}
    settings: dict[str, Any] = {"rows": 8, "max_tokens": 32, "weight_decay": 0.0}
    schedule = small_schedule(num_steps=60, lr=1.5e-2, **settings).at(1.5e-2)
    for cell in cells:
        task, model = built(cell)
        examples: Any = task.encode([*rows_of(cell.kind)])
        data = FinetuningData(examples, task, batch_examples=len(examples), seed=1)
        first = mean_loss(model, task, data.micro_batches(0), CPU)
        for step in train(model, task, data, schedule, num_steps=40, seed=1, device=CPU):
            if step.loss < 0.5 * first:
                break
        assert mean_loss(model, task, data.micro_batches(0), CPU) < 0.8 * first, cell
