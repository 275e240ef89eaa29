"""Methods: what trains, and that nothing else changes."""

import copy

import pytest
import torch

from stages.components import build, component_class, names
from stages.models._heads import Headed, initialise_head
from stages.tasks.classification import Classification
from stages.tasks.tagging import Tagging
from stages.training.device import Device
from stages.training.finetuning import FinetuningData
from stages.training.loop import mean_loss, train
from tests.small import ARCHITECTURES, small_model, small_tokenizer
from tests.training.test_loop import SCHEDULE

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
TRAINING = [
    name
    for name in names("methods")
    if vars(component_class("methods", name, where="")).get("trains", True)
]
TASKS = {"classification": (Classification, ["a", "b"]), "tagging": (Tagging, ["B", "O"])}


def prepared(architecture: str, task_name: str, method_name: str):
    cls, labels = TASKS[task_name]
    task = cls(labels, small_tokenizer(), 32, dropout=0.0)
    backbone = small_model(architecture).for_tokens()
    head = task.head(backbone)
    initialise_head(head, generator=torch.Generator().manual_seed(1))
    model = Headed(backbone, head)
    method = build("methods", {"name": method_name}, where="method")
    method.apply(model, generator=torch.Generator().manual_seed(2))
    examples = task.encode(ROWS)
    method.before_training(model, [task.collate(examples, rngs=[])])
    return task, model, examples


@pytest.mark.parametrize("method", TRAINING)
@pytest.mark.parametrize("task_name", TASKS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_method_fits_a_small_set_and_changes_what_it_says(
    architecture, task_name, method
) -> None:
    task, model, examples = prepared(architecture, task_name, method)
    before = copy.deepcopy(model.state_dict())
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    data = FinetuningData(examples, task, batch_examples=6, seed=1)
    batches = data.micro_batches(0)
    first = mean_loss(model, task, batches, CPU)
    train(model, task, data, SCHEDULE, num_steps=60, seed=1, device=CPU)
    assert mean_loss(model, task, batches, CPU) < (0.9 if method == "linear_probe" else 0.3) * first
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]) != (name in trained), name


def test_full_trains_all_and_a_probe_the_head_alone() -> None:
    _, full, _ = prepared("encoder", "classification", "full")
    _, probe, _ = prepared("encoder", "classification", "linear_probe")
    assert all(p.requires_grad for p in full.parameters())
    names_of = {n for n, p in probe.named_parameters() if p.requires_grad}
    assert names_of == {"head.linear.weight", "head.linear.bias"}


def test_remembered_states_are_those_of_the_backbone() -> None:
    """Looked up in another order and with other padding than they were computed in."""
    task, model, examples = prepared("encoder", "classification", "linear_probe")
    batch = task.collate([examples[3], examples[0]], rngs=[])
    remembered = model.backbone(batch)
    computed = model.backbone.backbone.eval()(batch)
    real = (batch.document_ids > 0).unsqueeze(-1)
    torch.testing.assert_close(remembered * real, computed * real, atol=1e-5, rtol=1e-4)


def test_the_backbone_of_a_probe_is_asked_once() -> None:
    task, model, examples = prepared("encoder", "classification", "linear_probe")

    def refuse(batch):
        raise AssertionError("asked again")

    model.backbone.backbone.forward = refuse
    train(
        model,
        task,
        FinetuningData(examples, task, batch_examples=2, seed=1),
        SCHEDULE,
        num_steps=6,
        seed=1,
        device=CPU,
    )
