"""What holds for every task: padding changes nothing, rows without labels count in no loss, and a
label of a text is predicted from states that have read all of it."""

import subprocess
import sys
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from stages.evaluation.metrics import METRICS, metric_of, scale_of
from stages.models._backbone import MODELS
from stages.models._heads import ModelWithHead, initialise_head, log_likelihoods
from stages.tasks._metric import Metric
from stages.tasks._task import TASKS, Predicted, Task
from stages.tasks._text_form import TextToText
from stages.text.tokenizer import Tokenizer
from tests.small import ARCHITECTURES, small_model, small_tokenizer, with_head
from tests.small_hub import FAMILIES, checkpoint, revision_of

pytestmark = pytest.mark.usefixtures("one_thread")

SPAN = {"stride": 4, "max_question_tokens": 8, "max_answer_tokens": 12}
SETTINGS: dict[str, dict[str, Any]] = {
    "multiple_choice": {"dropout": 0.0},
    "span_qa": SPAN | {"dropout": 0.0, "no_answer": True},
    "seq2seq": {"max_target_tokens": 12},
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


def task_of(name: str) -> Task:
    entry = {"name": name, **SETTINGS.get(name, {})}
    task = TASKS.build(entry, LABELS.get(name, []), small_tokenizer(), 48, where="task")
    task.record = TASKS[name].facts(rows_of(name))
    return task


def model_of(task: Task, architecture: str) -> ModelWithHead:
    backbone = small_model(architecture)
    task.read_by(backbone, has_prefix=False)
    if task.generates or task.scores_text:
        return ModelWithHead(backbone, task.head(backbone)).eval()
    return with_head(task, backbone)


FITTING = [
    (name, architecture)
    for name in TASKS.names()
    for architecture in TASKS.find(name, where="").architectures or ARCHITECTURES
    if name != "seq2seq" or architecture in ("decoder", "encoder_decoder")
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
@pytest.mark.parametrize("name", sorted(ROWS.keys() - {"language_modelling"}))
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


# Reading ----------------------------------------------------------------------------------------

PREFIX = "prefix"  # a decoder that was pretrained to read its input in both directions
CAUSAL = ("decoder", "gpt2")
WAYS = [
    *product(("mean", "last", "first"), (*ARCHITECTURES, PREFIX, *FAMILIES)),
    *product(["written"], (*CAUSAL, PREFIX, "encoder_decoder", "t5", "bart")),
    *product(["scored"], CAUSAL),
]
PAIR = {
    "id": "1",
    "text": "a class of their own",
    "text_pair": "returns objects, and an antidisestablishmentarian one",
}


@cache
def reader(name: str) -> tuple[Any, Tokenizer]:
    if name not in FAMILIES:
        return small_model("decoder" if name == PREFIX else name).eval(), small_tokenizer()
    folder, tokenizer = checkpoint(name), Tokenizer(checkpoint(name))
    entry = {"name": "hub", "path": str(folder), "revision": revision_of(folder)}
    model: Any = MODELS.build(entry, tokenizer.vocab_size, where="architecture")
    model.initialise(generator=torch.Generator().manual_seed(0))
    return model.eval(), tokenizer


@pytest.mark.slow
@pytest.mark.parametrize(("how", "by"), WAYS)
def test_logits_of_a_label_depend_on_all_texts(how: str, by: str) -> None:
    """They have a gradient at the embedding of each token of the texts."""
    (backbone, tokenizer), embedded = reader(by), list[torch.Tensor]()
    pooling = {"pooling": how} if how in ("mean", "last", "first") else {}
    entry = {"name": "language_modelling" if how == "scored" else "classification", **pooling}
    labels = ["a", "b"] if how != "scored" else []
    task: Task = TASKS.build(entry, labels, tokenizer, 64, where="task")
    if how == "written":
        task = TextToText("films", {"task": entry, "labels": labels}, task)
    task.read_by(backbone, has_prefix=by == PREFIX)
    if by in CAUSAL and how == "first":
        with pytest.raises(ValueError, match="^pooling: "):
            task.head(backbone)
        return
    head = task.head(backbone)
    initialise_head(head, generator=torch.Generator().manual_seed(1), std=0.5)
    (example,) = task.encode([PAIR])
    batch = task.collate([example], rngs=[])

    def keep(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        length = batch.input_ids.shape[1]
        is_embedding = isinstance(module, nn.Embedding)
        if is_embedding and torch.equal(arguments[0][:, :length], batch.input_ids):
            embedded.append(output)

    kept = register_module_forward_hook(keep)
    if how == "scored":
        logits = log_likelihoods(backbone, batch)
    elif how == "written":
        logits = backbone.unembed(backbone.decode(batch))[0, 0]
    else:
        logits = head.eval()(backbone(batch), batch.document_ids)
    kept.remove()
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(2))
    gradients = torch.autograd.grad((logits * weights).sum(), embedded, allow_unused=True)
    (gradient,) = (each for each in gradients if each is not None)
    texts = [at for at, token in enumerate(example.tokens) if tokenizer.is_regular[token]]
    assert texts and [at for at in texts if not gradient[0, at].any()] == []


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
            assert metric_of(name).name == name
            assert scale_of(name).signed(0.5) == f"+{scale_of(name).shown(0.5)}"
            assert scale_of(name).signed(0.0) == scale_of(name).shown(0.0), "0 has no sign"


@pytest.mark.slow
def test_tasks_import_no_torch() -> None:
    code = (
        "import sys, stages.prepare_task, stages.evaluate, stages.fit_baseline\n"
        "from stages.tasks._task import TASKS\n"
        "print([kind.name for kind in TASKS.values()], 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{TASKS.names()} False\n"
