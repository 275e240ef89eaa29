"""Every task, family and method fits a small set in a combination that has trials."""

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import pytest
import torch

from stages.core.seeding import stream, torch_stream
from stages.methods._method import METHODS, Predictor, SolvedMethod
from stages.models._heads import ModelWithHead, initialise_head
from stages.tasks._task import TASKS, Task
from stages.tasks._text_form import TextToText, Writing, label_words
from stages.training.device import Device
from stages.training.finetuning import FinetuningData
from stages.training.loop import mean_loss, train
from stages.trials.compatibility import incompatibility
from stages.trials.prediction import FrozenStates
from tests.methods.test_methods import method_of
from tests.small import FAMILIES, small_model, small_tokenizer
from tests.training.test_loop import SCHEDULE

pytestmark = pytest.mark.usefixtures("one_thread")

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
UNTRAINED = ("in_context", "none")
# Methods that train few weights need more steps and a higher rate.
SLOW = {"bitfit": (80, 0.1), "prefix": (80, 0.1), "prompt": (80, 0.03)}


class Cell(NamedTuple):
    """A task (as it is, or as text), a family and a method that go together."""

    kind: str
    text_to_text: bool
    family: str
    method: str

    def covers(self) -> set[Any]:
        return {(self.kind, self.text_to_text), self.family, self.method}


def fitting() -> Iterator[Cell]:
    """Yields combinations that go together, one for each task, family and method that none before
    it has."""
    models = {family: small_model(family) for family in FAMILIES}
    covered = set[Any]()
    for cell in map(Cell._make, product(TASKS.names(), (False, True), FAMILIES, METHODS.names())):
        method, task = method_of(cell.method), TASKS.find(cell.kind, where="task")
        reason = incompatibility(
            method, task, cell.kind, models[cell.family], text_to_text=cell.text_to_text
        )
        if reason is None and not cell.covers() <= covered:
            covered |= cell.covers()
            yield cell


CELLS = [*fitting()]


def name_of(cell: Cell) -> str:
    return "-".join((cell.kind, *["as_text"] * cell.text_to_text, cell.family, cell.method))


def test_every_task_family_and_method_has_a_combination() -> None:
    covered = set[Any]().union(*(cell.covers() for cell in CELLS))
    assert {*TASKS.names()} <= {each[0] for each in covered if isinstance(each, tuple)}
    assert {*FAMILIES, *METHODS.names()} <= covered


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


def built(cell: Cell) -> tuple[Task, ModelWithHead]:
    entry, labels = {"name": cell.kind, **SETTINGS.get(cell.kind, {})}, LABELS.get(cell.kind, [])
    task: Task = TASKS.build(entry, labels, small_tokenizer(), MAX_TOKENS, where="task")
    if cell.text_to_text:
        task = TextToText("task", {"task": entry, "labels": labels}, task)
    backbone = small_model(cell.family)
    if not (isinstance(task, Writing) or task.scores_text or method_of(cell.method).prompts):
        backbone.drop_output_layers()
    if backbone.architecture != "bilstm":  # so that states depend on other tokens
        with torch.no_grad():
            for weight in backbone.parameters():
                weight.mul_(6 if weight.dim() >= 2 else 1)
    head = task.head(backbone)
    initialise_head(head, generator=torch_stream(1, "head"))
    return task, ModelWithHead(backbone, head)


def check_fit(
    task: Any, model: ModelWithHead, examples: list[Any], method: Any, *, num_steps: int, lr: float
) -> None:
    """Checks that the loss falls and that exactly the weights that train change. Training ends
    early if all of them have trained and the loss is low."""
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    data = FinetuningData(examples, task, batch_examples=len(examples), seed=1)
    batches = data.micro_batches(0)
    first = mean_loss(model, task, batches, CPU)
    if isinstance(method, SolvedMethod):
        frozen_states = FrozenStates(task, CPU)
        frozen_states.compute(model, examples)
        labelled = frozen_states.labelled(examples)
        linear = model.head.linear
        *_, weakest = method.solutions(*labelled, num_outputs=linear.out_features)
        linear.weight.data = torch.from_numpy(weakest.weight).float()
        linear.bias.data = torch.from_numpy(weakest.bias).float()
    else:
        frozen, schedule = [*method.frozen(model, 0)], SCHEDULE.model_copy(update={"lr": lr})
        for step in train(
            model, task, data, schedule, num_steps=num_steps, seed=1, device=CPU, frozen=frozen
        ):
            is_low = not frozen and step.loss < 0.6 * first  # before its update
            if is_low and mean_loss(model, task, batches, CPU) < 0.6 * first:
                break
            frozen[:] = method.frozen(model, step.step // 10)
    assert mean_loss(model, task, batches, CPU) < 0.8 * first
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name]) != (name in trained), name


@pytest.mark.slow
@pytest.mark.parametrize("cell", [c for c in CELLS if c.method not in UNTRAINED], ids=name_of)
def test_method_fits_a_small_set_and_changes_its_own_weights_alone(cell) -> None:
    method = method_of(cell.method)
    task, model = built(cell)
    method.apply(model, generator=torch_stream(2, "method"))
    examples = task.encode([*rows_of(cell.kind)])
    num_steps, lr = SLOW.get(cell.method, (40, 1.5e-2))
    check_fit(task, model, examples, method, num_steps=num_steps, lr=lr)


@pytest.mark.parametrize("cell", [c for c in CELLS if c.method in UNTRAINED], ids=name_of)
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
    step = len(examples) // len(rows)
    predictions = [
        predictor.combine(row, parts[i * step : (i + 1) * step]) for i, row in enumerate(rows)
    ]
    assert all(isinstance(prediction, str) for prediction in predictions)
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    assert not any(weight.requires_grad for weight in model.parameters())
