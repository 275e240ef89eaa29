"""A step makes no tensor on another device than the model's, and the host waits for no value.

No GPU is needed: a step runs forward and backward on torch's device meta, which has shapes but no
values. Code that asks for a value, and so would wait for a GPU, raises. Public checkpoints are left
out: the code of transformers itself asks for values, such as whether a mask is all ones.
"""

from contextlib import nullcontext
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stages.methods._method import METHODS, TrainedMethod
from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead
from stages.objectives.distillation import Distillation
from stages.tasks._task import TASKS, Task
from stages.text.batch import Batch
from stages.text.tokenizer import TaskTokenizer
from stages.trials.compatibility import incompatibility
from tests.methods.test_methods import TRAINING, applied, method_of
from tests.small import ARCHITECTURES, small_model, small_tokenizer
from tests.tasks.test_reading import LABELS, PAIR, QUESTION, SPAN, TEXT, WORDS
from tests.training.trained_by_ranks import built, cases

pytestmark = pytest.mark.slow

META = torch.device("meta")
RECURRENT = ("bilstm",)  # needs the lengths of its rows on the host
READERS = tuple(name for name in ARCHITECTURES if name not in RECURRENT)
TRAINED = [name for name in TRAINING if issubclass(METHODS.find(name, where=""), TrainedMethod)]
SETTINGS: dict[str, dict[str, Any]] = {"span_qa": SPAN, "seq2seq": {"max_target_tokens": 8}}
AGAIN = {"id": "2"}
ROWS: dict[str, list[dict[str, Any]]] = {
    "classification": [TEXT, PAIR | AGAIN],
    "language_modelling": [TEXT, TEXT | AGAIN],
    "multi_label": [TEXT | {"labels": ["O"]}, TEXT | AGAIN | {"labels": []}],
    "multiple_choice": [
        {"id": "1", "text": "a class", "choices": ["of it", "of their own"], "label": "0"},
        {"id": "2", "text": "a call", "choices": ["of it", "of two", "of none"], "label": "2"},
    ],
    "regression": [TEXT | {"target": 0.5}, PAIR | AGAIN | {"target": 1.5}],
    "seq2seq": [TEXT | {"target": "of it"}, TEXT | AGAIN | {"target": "of their own"}],
    "span_qa": [QUESTION, QUESTION | AGAIN],
    "tagging": [WORDS, WORDS | AGAIN],
}


@pytest.fixture(autouse=True)
def autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out autocast, which torch lacks for meta."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())


class OneDevice(TorchDispatchMode):
    """Refuses operations on tensors of several devices. A single number may be on the host, as its
    value is known when the operation is queued."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if len({tensor.device.type for tensor in tensors if tensor.dim()}) > 1:
            raise AssertionError(f"{func} has tensors of several devices")
        return func(*args, **kwargs)


def step(model: ModelWithHead, criterion: Any, batch: Batch) -> None:
    """Runs forward and backward like the training loop."""
    model.to(META).train()
    with OneDevice():
        terms = criterion.loss(model, batch.to(META))
        loss = sum(weight * total for weight, total in terms.values())
        assert isinstance(loss, Tensor)
        loss.backward()
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    assert gradients and all(gradient.is_meta for gradient in gradients)


def task_of(name: str, backbone: Backbone, tokenizer: TaskTokenizer) -> Task:
    settings = SETTINGS.get(name, {})
    kind = TASKS.find(name, where="").kind
    labels = LABELS if kind.has_classes else []
    of: Task = TASKS.build({"name": name, **settings}, labels, tokenizer, 64, where="task")
    of.take_facts(kind.facts(ROWS[name]))
    of.read_by(backbone, has_prefix=False)
    return of


def learns(name: str, backbone: Backbone, tokenizer: TaskTokenizer) -> None:
    of = task_of(name, backbone, tokenizer)
    if not (of.scores_text or of.generates):
        backbone.drop_output_layers()
    model = ModelWithHead(backbone, of.head(backbone))
    step(model, of, of.collate(of.encode(ROWS[name]), rngs=[]))


def fitting() -> list[tuple[str, str]]:
    """Returns the pairs of a task and an architecture that can learn it."""
    full = METHODS.build({"name": "full"}, where="")
    return [
        (name, architecture)
        for name, architecture in product(TASKS.names(), READERS)
        if incompatibility(full, TASKS.find(name, where=""), name, small_model(architecture))
        is None
    ]


@pytest.mark.parametrize(
    ("name", "architecture"), [case for case in cases() if case[1] not in RECURRENT]
)
def test_objectives_wait_for_no_device(name: str, architecture: str) -> None:
    objective, model, data = built(name, architecture)
    (batch, *_) = data.micro_batches(0)
    if isinstance(objective, Distillation):
        objective.teacher.to(META)
    step(model, objective, batch)


@pytest.mark.parametrize(("name", "architecture"), fitting())
def test_tasks_wait_for_no_device(name: str, architecture: str) -> None:
    learns(name, small_model(architecture), small_tokenizer())


@pytest.mark.parametrize(("name", "architecture"), [*product(TRAINED, READERS)])
def test_methods_wait_for_no_device(name: str, architecture: str) -> None:
    of, model, examples = applied(architecture, method_of(name))
    step(model, of, of.collate(examples, rngs=[]))
