"""The training loop: accumulation changes nothing, and learning happens."""

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from stages.core.params import Optimisation
from stages.objectives._objective import OBJECTIVES, Objective
from stages.text.packing import Packing
from stages.text.tokenizer import Vocabulary
from stages.training.device import Device
from stages.training.loop import Diverged, Step, add_gradients, lr_factor, mean_loss, train
from stages.training.pretraining import PretrainingData, validation_batches
from tests.small import VOCAB_SIZE, headless, small_corpus, small_model, small_schedule

pytestmark = pytest.mark.slow

CPU = Device("cpu", "float32", compile=False, threads=1)
PAIRS = [
    ("encoder", "mlm"),
    ("decoder", "causal"),
    ("encoder_decoder", "span_corruption"),
]
SCHEDULE = small_schedule(rows=8, max_tokens=32, num_steps=60, lr=5e-3, weight_decay=0.0).at(5e-3)


def objective_of(name: str) -> Objective:
    return OBJECTIVES.build({"name": name}, Vocabulary(VOCAB_SIZE), 32, where="objective")


def data_of(name: str, *, micro_batch_rows: int = 8) -> PretrainingData:
    packing = Packing(small_corpus(), 32, seed=1)
    return PretrainingData(
        packing, objective_of(name), batch_rows=8, micro_batch_rows=micro_batch_rows, seed=1
    )


@pytest.mark.parametrize(("architecture", "objective"), [*PAIRS, ("bilstm", "bidirectional_lm")])
def test_add_gradients_has_equal_gradients_for_any_micro_batches(architecture, objective) -> None:
    """Losses and gradients of 1 x 8, 4 x 2 and 8 x 1 rows are equal up to rounding."""
    gradients, losses = [], []
    for rows in (8, 2, 1):
        model = headless(small_model(architecture))
        batches = data_of(objective, micro_batch_rows=rows).micro_batches(3)
        assert len(batches) == 8 // rows
        losses.append(float(sum(add_gradients(model, objective_of(objective), batches, CPU))))
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)
    for other in gradients[1:]:
        assert other.keys() == gradients[0].keys()
        for name, gradient in gradients[0].items():
            torch.testing.assert_close(other[name], gradient, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize(("architecture", "objective"), PAIRS)
def test_train_beats_the_unigram_entropy_of_held_out_targets(architecture, objective) -> None:
    """A model uses context, not frequency alone, on rows that it was not trained on."""
    criterion = objective_of(objective)
    start: dict[str, Any] = {"start": "local"} if architecture == "encoder" else {}
    model = headless(small_model(architecture, d_model=64, **start))
    schedule = SCHEDULE.model_copy(update={"lr": 3e-3})
    list(train(model, criterion, data_of(objective), schedule, num_steps=250, seed=1, device=CPU))
    packing = Packing(small_corpus(), 32, seed=2)
    held_out = validation_batches(packing, criterion, batch_rows=32)
    labels = torch.cat([b.labels[b.labels >= 0] for b in held_out if b.labels is not None])
    shares = torch.bincount(labels) / len(labels)
    entropy = -(shares[shares > 0] * shares[shares > 0].log()).sum().item()
    assert mean_loss(model, criterion, held_out, CPU) < entropy


def test_mean_loss_is_a_mean_over_targets() -> None:
    """It does not depend on how rows are divided into batches."""
    model, criterion = headless(small_model("decoder")), objective_of("causal")
    packing = Packing(small_corpus(), 32, seed=1)
    rows = [packing.row(i) for i in range(6)]
    one = criterion.collate(rows, rngs=[])
    three = [criterion.collate(part, rngs=[]) for part in (rows[:1], rows[1:3], rows[3:])]
    expected = mean_loss(model, criterion, [one], CPU)
    assert mean_loss(model, criterion, three, CPU) == pytest.approx(expected, rel=1e-5)


def training_of(objective: str, **settings: Any) -> Generator[Step, None, None]:
    architecture = {name: architecture for architecture, name in PAIRS}[objective]
    usual: dict[str, Any] = {"num_steps": 3, "seed": 1, "device": CPU}
    return train(
        settings.pop("model", headless(small_model(architecture))),
        objective_of(objective),
        data_of(objective),
        settings.pop("schedule", SCHEDULE),
        **(usual | settings),
    )


def test_train_yields_each_step_and_trains_all_parts_of_a_model() -> None:
    """A checkpoint that was just read is in evaluation mode, and so is a validated model."""
    model, history = headless(small_model("decoder")), list[Step]()
    model.backbone.eval()
    for step in training_of("causal", model=model, history=history):
        assert all(part.training for part in model.modules())
        model.eval()
        assert history[-1] is step and len(history) == step.step
        step.validation_loss = float(step.step)
    assert [step.validation_loss for step in history] == [1.0, 2.0, 3.0]
    assert all(step.flops > 0 for step in history)


def test_train_leaves_frozen_weights_until_they_are_released() -> None:
    model = headless(small_model("encoder"))
    first, *_ = model.parameters()
    frozen = [first]
    before = first.detach().clone()
    changed = []
    for step in training_of("mlm", model=model, frozen=frozen):
        changed.append(not torch.equal(first, before))
        assert all(weight.requires_grad for weight in model.parameters())
        if step.step == 2:
            frozen.clear()
    assert changed == [False, False, True]


def test_train_ends_at_a_loss_that_is_not_finite() -> None:
    history: list[Step] = []
    schedule = SCHEDULE.model_copy(update={"lr": 1e30})
    with pytest.raises(Diverged, match=r"^lr: .* 1e\+30"):
        for step in training_of("mlm", schedule=schedule, history=history, num_steps=9):
            assert np.isfinite(step.loss)
    assert not np.isfinite(history[-1].loss) and len(history) < 9
    with pytest.raises(Diverged, match=r"^lr: .*validation loss of step 2 "):
        for step in training_of("mlm"):
            step.validation_loss = float("nan") if step.step == 2 else 1.0


def test_loss_refuses_a_term_that_the_batches_do_not_count() -> None:
    model, criterion = headless(small_model("decoder")), objective_of("causal")
    batch = criterion.collate([Packing(small_corpus(), 32, seed=1).row(0)], rngs=[])
    with pytest.raises(TypeError, match=r"^stages/objectives/causal\.py: .*'causal'.*words"):
        add_gradients(model, criterion, [replace(batch, num_targets={"words": 9})], CPU)


@pytest.mark.parametrize("decay", ["linear", "cosine", "constant"])
def test_lr_factor_rises_to_1_and_falls_to_0(decay) -> None:
    schedule = Optimisation(lr=1.0, warmup_fraction=0.1, decay=decay)
    factors = [lr_factor(schedule, step, 100) for step in range(101)]
    assert factors[0] == pytest.approx(1 / 11)
    assert max(factors) == factors[10] == pytest.approx(1.0)
    assert factors[:11] == sorted(factors[:11])
    assert factors[10:] == sorted(factors[10:], reverse=True)
    assert factors[100] == pytest.approx(1.0 if decay == "constant" else 0.0)
