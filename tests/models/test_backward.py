"""Operations of a training step by rule, beside those that torch counts while it takes the step."""

from typing import Any

import pytest
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from stages.core.seeding import torch_stream
from stages.methods._method import TrainedMethod
from stages.tasks.seq2seq import Seq2Seq
from stages.training.loop import _without_gradients, step_flops
from tests.methods.test_methods import FITTING, PUBLIC, applied, method_of
from tests.small import headless, small_model, small_tokenizer

pytestmark = pytest.mark.slow

# Of a public model the rule knows its weights in the order of registration alone, which is not
# always that of the forward pass (T5's norms); in small models the lowest block weighs much. The
# first step of an LSTM reads a state of zeros. A prefix in the lowest block has no gradient for the
# queries.
TOLERANCE = {"bilstm": 0.05, "prefix": 0.015} | dict.fromkeys(PUBLIC, 0.1)


def counted(model: Any, task: Any, batch: Any) -> int:
    counter = FlopCounterMode(display=False)
    with sdpa_kernel(SDPBackend.MATH), counter:
        ((_, loss),) = task.loss(model, batch).values()
        loss.backward()
    return counter.get_total_flops()


def tolerance(*names: str) -> float:
    return max(TOLERANCE.get(name, 0.005) for name in names)


@pytest.mark.parametrize(
    ("architecture", "name", "epoch"),
    [
        (architecture, name, epoch)
        for architecture, name in FITTING
        if isinstance(method_of(name), TrainedMethod)
        for epoch in ((0, 1, 2) if name == "gradual_unfreezing" else (0,))
    ],
)
def test_a_step_takes_what_torch_counts(architecture: str, name: str, epoch: int) -> None:
    method = method_of(name)
    assert isinstance(method, TrainedMethod)
    task, model, examples = applied(architecture, method)
    batch = task.collate(examples, rngs=[])
    with _without_gradients([*method.frozen(model, epoch)]):
        ruled = step_flops(model, task, batch)
        measured = counted(model, task, batch)
    assert ruled == pytest.approx(measured, rel=tolerance(architecture, name))


@pytest.mark.parametrize("name", ["full", "lora", "adapter", "bitfit", "gradual_unfreezing"])
@pytest.mark.parametrize("architecture", ["decoder", "encoder_decoder"])
def test_a_step_of_writing_takes_what_torch_counts(architecture: str, name: str) -> None:
    """Encoder and decoder read texts of different lengths, and the vocabulary's logits count."""
    task = Seq2Seq([], small_tokenizer(), 32, max_target_tokens=12)
    model = headless(small_model(architecture))
    method = method_of(name)
    assert isinstance(method, TrainedMethod)
    method.apply(model, generator=torch_stream(2, "method"))
    rows = [
        {"id": str(i), "text": text, "target": target}
        for i, (text, target) in enumerate([("the class statement", "a class"), ("call it", "yes")])
    ]
    batch = task.collate(task.encode(rows), rngs=[])
    with _without_gradients([*method.frozen(model, 0)]):
        ruled = step_flops(model, task, batch)
        measured = counted(model, task, batch)
    assert ruled == pytest.approx(measured, rel=0.005)


def test_frozen_models_with_small_additions_take_about_two_forward_passes() -> None:
    """Two thirds of what full fine-tuning takes, in a model with several layers."""
    shares = {}
    for name in ("full", "bitfit", "lora", "adapter"):
        task, model, examples = applied("encoder", method_of(name), num_layers=6)
        batch = task.collate(examples, rngs=[])
        shares[name] = step_flops(model, task, batch) / task.flops(model, batch)
    assert shares.pop("full") == 3
    assert all(1.9 < share < 2.25 for share in shares.values()), shares
