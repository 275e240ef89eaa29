"""What holds for every task: padding changes nothing, and rows without labels count in no loss."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from stages.evaluation.metrics import METRICS, metric_of, scale_of
from stages.models._heads import ModelWithHead
from stages.tasks._metric import Metric
from stages.tasks._task import TASKS, Predicted, Task
from tests.small import ARCHITECTURES, small_model, small_tokenizer, with_head

pytestmark = pytest.mark.usefixtures("one_thread")

SPAN = {"stride": 4, "max_question_tokens": 8, "max_answer_tokens": 12}
SETTINGS: dict[str, dict[str, Any]] = {
    "classification": {},
    "regression": {},
    "multi_label": {},
    "multiple_choice": {"dropout": 0.0},
    "tagging": {},
    "span_qa": SPAN | {"dropout": 0.0, "no_answer": True},
    "seq2seq": {"max_target_tokens": 12},
    "language_modelling": {},
}
LABELS = {
    "classification": ["bad", "good"],
    "multi_label": ["call", "class"],
    "tagging": ["B-X", "I-X", "O"],
}
WORDS = ["cat", "dog", "sun", "sea", "ice", "oak", "elm", "ash"]


def asked(i: int) -> dict[str, Any]:
    """A question whose answer is a word of its context; every fourth has no answer."""
    context = " ".join(WORDS[5 * i % 8 :] + WORDS[: 5 * i % 8])
    word = WORDS[3 * i % 8]
    answers = [{"text": word, "answer_start": context.index(word)}] if i % 4 else []
    return {"question": f"which {WORDS[i]}?", "context": context, "answers": answers}


ROWS: dict[str, list[dict[str, Any]]] = {
    "classification": [
        {"text": "a class", "label": "bad"},
        {"text": "a class", "text_pair": "of a function that has methods", "label": "good"},
        {"text": "", "label": "bad"},
        {"text": "a function " * 50, "label": "good"},
    ],
    "regression": [
        {"text": "the class", "text_pair": "the class", "target": 5000.0},
        {"text": "the function", "text_pair": "a method call", "target": 1000.0},
        {"text": "a call of the function", "target": 4800.0},
    ],
    "multi_label": [
        {"text": "a call of the function", "labels": ["call"]},
        {"text": "the class", "labels": []},
        {"text": "a call of a class", "labels": ["call", "class"]},
    ],
    "multiple_choice": [
        {"text": "a class", "choices": ["the class", "a call"], "label": "0"},
        {"text": "a call", "choices": ["the class", "a method", "the call"], "label": "2"},
    ],
    "tagging": [
        {"words": ["The", "class", "x.y_z()"], "tags": ["O", "B-X", "I-X"]},
        {"words": ["antidisestablishmentarian"], "tags": ["O"]},
    ],
    "span_qa": [asked(i) for i in range(8)],
    "seq2seq": [
        {"text": "class def for", "target": "value name"},
        {"text": "not", "target": "a list of names and values"},
    ],
    "language_modelling": [{"text": "a class"}, {"text": "a function of other functions"}],
}


def rows_of(name: str) -> list[dict[str, Any]]:
    return [{"id": str(i), **row} for i, row in enumerate(ROWS[name])]


def task_of(name: str, **settings: Any) -> Task:
    entry = {"name": name, **SETTINGS[name], **settings}
    task = TASKS.build(entry, LABELS.get(name, []), small_tokenizer(), 48, where="task")
    task.take_facts(TASKS[name].facts(rows_of(name)))
    return task


def model_of(task: Task, architecture: str) -> ModelWithHead:
    backbone = small_model(architecture)
    task.read_by(backbone, has_prefix=False)
    if task.generates or task.scores_text:
        return ModelWithHead(backbone, task.head(backbone)).eval()
    return with_head(task, backbone)


WRITERS = ("decoder", "encoder_decoder")
FITTING = [
    (name, architecture)
    for name in SETTINGS
    for architecture in TASKS.find(name, where="").architectures or ARCHITECTURES
    if name != "seq2seq" or architecture in WRITERS
]


@torch.no_grad()
@pytest.mark.parametrize(("name", "architecture"), FITTING)
def test_loss_and_predictions_of_a_task_do_not_depend_on_the_batch(name, architecture) -> None:
    task = task_of(name)
    model, examples = model_of(task, architecture), task.encode(rows_of(name))
    batch = task.collate(examples, rngs=[])
    alone = [task.collate([example], rngs=[]) for example in examples]
    for term, (_, loss) in task.loss(model, batch).items():
        torch.testing.assert_close(loss, sum(task.loss(model, one)[term][1] for one in alone))
    together = task.predict(model, batch, examples)
    singly = [
        prediction
        for one, example in zip(alone, examples, strict=True)
        for prediction in task.predict(model, one, [example])
    ]
    if isinstance(together[0], Predicted):
        together, singly = ([each.prediction for each in part] for part in (together, singly))
    if name in ("classification", "multi_label", "multiple_choice", "tagging", "seq2seq"):
        assert together == singly
    else:
        np.testing.assert_allclose(np.array(together, float), np.array(singly, float), rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "language_modelling"])
def test_loss_of_a_task_leaves_out_rows_without_labels(name) -> None:
    task = task_of(name)
    model = model_of(task, "encoder_decoder")
    first, *others = rows_of(name)
    hidden = [{k: v for k, v in row.items() if k != task.kind.target} for row in others]
    labelled, unlabelled = (task.encode(rows) for rows in ([first], hidden))
    batch = task.collate([*labelled, *unlabelled], rngs=[])
    alone = task.collate(labelled, rngs=[])
    assert batch.num_targets == alone.num_targets
    for term, (_, loss) in task.loss(model, alone).items():
        torch.testing.assert_close(task.loss(model, batch)[term][1], loss)


@torch.no_grad()
def test_loss_of_multi_label_is_that_of_torch_over_all_texts_and_labels() -> None:
    task, rows = task_of("multi_label"), rows_of("multi_label")
    model, batch = model_of(task, "encoder"), task.collate(task.encode(rows), rngs=[])
    targets = [[float(label in row["labels"]) for label in task.labels] for row in rows]
    expected = torch.nn.BCEWithLogitsLoss()(task.outputs(model, batch), torch.tensor(targets))
    loss = task.loss(model, batch)["multi_label"][1]
    torch.testing.assert_close(loss / batch.num_targets["multi_label"], expected)


@torch.no_grad()
def test_regression_learns_standardised_targets_and_predicts_targets() -> None:
    task, rows = task_of("regression"), rows_of("regression")
    model, batch = model_of(task, "encoder"), task.collate(task.encode(rows), rngs=[])
    targets = np.array([row["target"] for row in rows])
    assert batch.labels is not None
    expected = (targets - targets.mean()) / targets.std()
    np.testing.assert_allclose(batch.labels.numpy(), expected, rtol=1e-6)
    model.head.linear.weight.zero_()
    assert {*task.predict(model, batch, [])} == {"3600"}  # the mean
    loss = task.loss(model, batch)["regression"][1]
    assert loss.item() == pytest.approx(len(rows))  # predicting the mean costs 1 for each row


# Rows -------------------------------------------------------------------------------------------


def test_same_input_ignores_case_white_space_and_labels() -> None:
    texts, words = TASKS["classification"].same_input, TASKS["tagging"].same_input
    first = {"text": "A  cat\nsat", "label": "x"}
    assert texts(first) == texts({"text": "a cat sat", "label": "y"})
    assert texts(first) != texts({"text": "a cat", "text_pair": "sat", "label": "x"})
    assert words({"words": ["a", "b"], "tags": []}) != words({"words": ["a b"], "tags": []})


def test_metric_of_finds_every_metric_of_every_task() -> None:
    own = [each.name for k in TASKS.values() for each in k.metrics if isinstance(each, Metric)]
    assert len({*own}) == len(own) and not {*own} & METRICS.keys()
    for kind in TASKS.values():
        assert kind.metric_names and kind.right_if in (None, *kind.metric_names)
        for name in kind.metric_names:
            assert metric_of(name).name == name and scale_of(name).shown(0.5)


@pytest.mark.slow
def test_tasks_import_no_torch() -> None:
    code = (
        "import sys, stages.prepare_task, stages.evaluate, stages.fit_baseline\n"
        "from stages.tasks._task import TASKS\n"
        "print([kind.name for kind in TASKS.values()], 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{TASKS.names()} False\n"
