"""Operations, compared with those by hand."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from stages.tasks.classification import Classification
from stages.training import flops
from stages.training.flops import StepFlops, counting
from stages.training.loop import add_gradients
from tests.small import headless, small_model, small_tokenizer, with_head
from tests.training.test_loop import CPU, data_of, objective_of

ROWS, LENGTH, WIDTH = 3, 20, 16


def counted(compute: Any) -> int:
    with counting() as counter:
        compute()
    return counter.flops


def test_counting_has_the_products_of_attention_and_of_an_lstm() -> None:
    query = torch.randn(ROWS, 2, LENGTH, WIDTH)
    product = 2 * ROWS * 2 * LENGTH * LENGTH * WIDTH
    assert counted(lambda: scaled_dot_product_attention(query, query, query)) == 2 * product
    lstm, states = nn.LSTM(WIDTH, WIDTH, batch_first=True), torch.randn(ROWS, LENGTH, WIDTH)
    forward = 2 * ROWS * LENGTH * 4 * WIDTH * 2 * WIDTH  # the gates
    assert counted(lambda: lstm(states)) == forward
    # No gradient is needed for the first states.
    step = counted(lambda: lstm(states)[0].sum().backward())
    assert 2 * forward <= step <= 3 * forward


@pytest.mark.parametrize(
    ("objective", "architecture"), [("causal", "decoder"), ("bidirectional_lm", "bilstm")]
)
def test_a_step_takes_about_six_operations_for_each_token_and_weight(
    objective: str, architecture: str
) -> None:
    """The rule of Kaplan et al. 2020 (section 2.1), without attention; the output layer shares the
    weights of the embedding."""
    model = headless(small_model(architecture))
    batches = data_of(objective).micro_batches(0)
    operations = counted(lambda: add_gradients(model, objective_of(objective), batches, CPU))
    weights = sum(weight.numel() for weight in model.parameters() if weight.dim() > 1)
    assert operations / (6 * batches[0].input_ids.numel() * weights) == pytest.approx(1.0, rel=0.35)


def test_step_flops_differ_with_the_weights_that_train(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flops, "_OF_PROCESS", {})
    task = Classification(["0", "1"], small_tokenizer(), 32)
    model = with_head(task, small_model("encoder"))
    batch = task.collate(task.encode([{"id": "1", "text": "a class", "label": "0"}]), rngs=[])
    step_flops, calls = StepFlops(model, task, CPU, resumes=False), list[object]()

    def step() -> None:
        calls.append(add_gradients(model, task, [batch], CPU))

    _, whole = step_flops.of(step, [batch])
    assert step_flops.of(step, [batch])[1] == whole == [*step_flops.counts.values()][0]
    model.backbone.requires_grad_(False)
    assert 0 < step_flops.of(step, [batch])[1] < 0.7 * whole and len(calls) == 3
