"""The training loop: micro-batches change nothing, interrupted equals uninterrupted, and learning
happens."""

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stages.core.params import Optimisation
from stages.models._heads import ModelWithHead
from stages.objectives._objective import OBJECTIVES, Objective
from stages.optimizers.adamw import AdamW
from stages.tasks.classification import Classification
from stages.text.packing import Packing
from stages.text.tokenizer import Vocabulary
from stages.training.checkpoint import Resumable, load_weights, save_weights
from stages.training.device import Device
from stages.training.finetuning import FinetuningData
from stages.training.loop import Diverged, Step, add_gradients, lr_factor, mean_loss, train
from stages.training.pretraining import PretrainingData
from stages.training.tries import Try, try_each
from tests.small import (
    VOCAB_SIZE,
    headless,
    small_corpus,
    small_model,
    small_schedule,
    small_tokenizer,
)

pytestmark = pytest.mark.slow

CPU = Device("cpu", "float32", compile=False, threads=1)
OBJECTIVE = {
    "encoder": "mlm",
    "decoder": "causal",
    "encoder_decoder": "span_corruption",
    "bilstm": "bidirectional_lm",
}
SCHEDULE = small_schedule(rows=8, max_tokens=32, num_steps=60, lr=5e-3, weight_decay=0.0).at(5e-3)


def objective_of(name: str) -> Objective:
    return OBJECTIVES.build({"name": name}, Vocabulary(VOCAB_SIZE), 32, where="objective")


def packing() -> Packing:
    return Packing(small_corpus(), 32, seed=1)


def data_of(name: str, *, micro_batch_rows: int = 8) -> PretrainingData:
    rows = {"batch_rows": 8, "micro_batch_rows": micro_batch_rows}
    return PretrainingData(packing(), objective_of(name), **rows, seed=1)


def training_of(
    model: ModelWithHead, objective: str, *, schedule: Optimisation = SCHEDULE, **settings: Any
) -> Generator[Step, None, None]:
    usual: dict[str, Any] = {"num_steps": 3, "seed": 1, "device": CPU}
    data = data_of(objective)
    return train(model, objective_of(objective), data, schedule, **(usual | settings))


# Losses and gradients ----------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", OBJECTIVE)
def test_add_gradients_has_equal_gradients_for_any_micro_batches(architecture: str) -> None:
    """Losses and gradients of 1 x 8, 4 x 2 and 8 x 1 rows are equal up to rounding."""
    objective, gradients, losses = OBJECTIVE[architecture], [], []
    for rows in (8, 2, 1):
        model = headless(small_model(architecture))
        batches = data_of(objective, micro_batch_rows=rows).micro_batches(3)
        assert len(batches) == 8 // rows
        losses.append(float(sum(add_gradients(model, objective_of(objective), batches, CPU))))
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)
    for other in gradients[1:]:
        torch.testing.assert_close(other, gradients[0], atol=1e-5, rtol=1e-3)


def test_mean_loss_is_a_mean_over_targets() -> None:
    """It does not depend on how rows are divided into batches, and drops nothing out."""
    model, criterion = headless(small_model("decoder")), objective_of("causal")
    rows = [packing().row(i) for i in range(6)]
    one = criterion.collate(rows, rngs=[])
    three = [criterion.collate(part, rngs=[]) for part in (rows[:1], rows[1:3], rows[3:])]
    losses = [mean_loss(model.train(), criterion, batches, CPU) for batches in ([one], three)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5) and not model.training
    assert losses[0] == pytest.approx(float(sum(add_gradients(model, criterion, [one], CPU))))


def test_loss_refuses_a_term_that_the_batches_do_not_count() -> None:
    model, criterion = headless(small_model("decoder")), objective_of("causal")
    batch = criterion.collate([packing().row(0)], rngs=[])
    with pytest.raises(TypeError, match=r"^stages/objectives/causal\.py: .*'causal'.*words"):
        add_gradients(model, criterion, [replace(batch, num_targets={"words": 9})], CPU)


# Steps -------------------------------------------------------------------------------------------


def test_train_yields_each_step_and_trains_all_parts_of_a_model() -> None:
    """A checkpoint that was just read is in evaluation mode, and so is a validated model."""
    model, history = headless(small_model("decoder")), list[Step]()
    model.backbone.eval()
    for step in training_of(model, "causal", history=history):
        assert all(part.training for part in model.modules())
        model.eval()
        assert history[-1] is step and len(history) == step.step
        step.validation_loss = float(step.step)
    assert [step.validation_loss for step in history] == [1.0, 2.0, 3.0]
    assert all(step.flops > 0 for step in history)


def test_train_leaves_frozen_weights_until_they_are_released() -> None:
    model = headless(small_model("encoder"))
    first, *_ = model.parameters()
    frozen, before, changed = [first], first.detach().clone(), []
    for step in training_of(model, "mlm", frozen=frozen):
        changed.append(not torch.equal(first, before))
        assert all(weight.requires_grad for weight in model.parameters())
        if step.step == 2:
            frozen.clear()
    assert changed == [False, False, True]


def test_train_ends_at_a_loss_that_is_not_finite() -> None:
    history: list[Step] = []
    model, schedule = headless(small_model("encoder")), SCHEDULE.model_copy(update={"lr": 1e30})
    with pytest.raises(Diverged, match=r"^lr: .* 1e\+30"):
        for step in training_of(model, "mlm", schedule=schedule, history=history, num_steps=9):
            assert np.isfinite(step.loss)
    assert not np.isfinite(history[-1].loss) and len(history) < 9
    with pytest.raises(Diverged, match=r"^lr: .*validation loss of step 2 "):
        for step in training_of(headless(small_model("encoder")), "mlm"):
            step.validation_loss = float("nan") if step.step == 2 else 1.0


@pytest.mark.parametrize("decay", ["linear", "cosine", "constant"])
def test_lr_factor_rises_to_1_and_falls_to_0(decay: Any) -> None:
    schedule = Optimisation(lr=1.0, warmup_fraction=0.1, decay=decay)
    factors = [lr_factor(schedule, step, 100) for step in range(101)]
    assert factors[0] == pytest.approx(1 / 11)
    assert max(factors) == factors[10] == pytest.approx(1.0)
    assert factors[:11] == sorted(factors[:11])
    assert factors[10:] == sorted(factors[10:], reverse=True)
    halfway = {"linear": 0.5, "cosine": 0.5, "constant": 1.0}[decay]
    assert factors[55] == pytest.approx(halfway)
    assert factors[100] == pytest.approx(1.0 if decay == "constant" else 0.0)


# Interruptions -----------------------------------------------------------------------------------

RATES = [1e-4, 5e-3, 1e-3]


class Killed(Exception):
    pass


def trained(
    folder: Path,
    rates: list[float],
    *,
    kill: tuple[float, int] | None = None,
    dropout: float = 0.0,
    optimizer: str = "adamw",
) -> tuple[ModelWithHead, list[Try], list[tuple[float, int]]]:
    """Trains a small model at each rate, until it is killed at (rate, step). Returns it with its
    tries and the steps (rate, step) of this process."""
    model = headless(small_model("encoder", config={"mlp_dropout": dropout}))
    validation, done = data_of("mlm").micro_batches(100), list[tuple[float, int]]()

    def attempt(rate: float, history: list[Step], resumable: Resumable) -> None:
        update = {"lr": rate, "optimizer": {"name": optimizer}}
        schedule, more = SCHEDULE.model_copy(update=update), {"resumable": resumable}
        for step in training_of(
            model, "mlm", schedule=schedule, num_steps=8, history=history, **more
        ):
            done.append((rate, step.step))
            if done[-1] == kill:
                raise Killed
            if step.step % 4 == 0:
                step.validation_loss = mean_loss(model, objective_of("mlm"), validation, CPU)

    return model, try_each(model, rates, Resumable("run", "a", scratch=folder), attempt), done


@pytest.mark.parametrize(
    ("rates", "kill", "how"),
    [
        ([5e-3], (5e-3, 7), {}),
        ([5e-3], (5e-3, 3), {"dropout": 0.2}),
        ([5e-3], (5e-3, 5), {"optimizer": "muon"}),
        *((RATES, kill, {}) for kill in ((5e-3, 3), (5e-3, 1), (1e-3, 6))),
    ],
)
def test_train_at_one_rate_or_several_resumes_bit_for_bit(
    tmp_path, monkeypatch, rates: list[float], kill: tuple[float, int], how: dict[str, Any]
) -> None:
    monkeypatch.setattr("stages.training.loop.CHECKPOINT_SECONDS", 0.0)
    whole, tries, _ = trained(tmp_path / "whole", rates, **how)
    with pytest.raises(Killed):
        trained(tmp_path / "killed", rates, kill=kill, **how)
    resumed, again, done = trained(tmp_path / "killed", rates, **how)
    assert done[0] == kill, "what was done before is not done again"
    assert again == tries
    assert all(map(torch.equal, whole.parameters(), resumed.parameters()))


def test_try_each_keeps_the_best_rate_and_a_rate_that_diverges_loses(tmp_path, capsys) -> None:
    model, tries, _ = trained(tmp_path, [1e30, 5e-3, 1e-6])
    assert "diverged at 1e+30" in capsys.readouterr().err
    alone, (only,), _ = trained(tmp_path / "alone", [5e-3])
    assert [each.diverged for each in tries] == [True, False, False]
    assert tries[1] == only and only.final_loss < tries[2].final_loss
    assert all(map(torch.equal, model.parameters(), alone.parameters()))
    with pytest.raises(ValueError, match=r"^lr: .*at each of 1e\+30, 1e\+31"):
        trained(tmp_path / "none", [1e30, 1e31])


def test_resumable_saves_no_frozen_weights_and_goes_with_the_fingerprint(tmp_path: Path) -> None:
    """A resumed process has the frozen weights, which may be nearly all of a large model."""
    model = headless(small_model("encoder"))
    weight, *frozen = model.parameters()
    for other in frozen:
        other.requires_grad_(False)
    optimizer = AdamW(model, 0.0, torch.float32)
    Resumable("run", "a", scratch=tmp_path).save({"step": 5}, model, optimizer)
    before = weight.detach().clone()
    with torch.no_grad():
        weight.zero_()
        frozen[0].fill_(7.0)
    assert Resumable("run", "b", scratch=tmp_path).load(model, optimizer) is None
    record = Resumable("run", "a", scratch=tmp_path).load(model, optimizer)
    assert record is not None and record["step"] == 5
    assert torch.equal(weight, before) and frozen[0].eq(7.0).all()


def test_load_weights_restores_what_save_weights_wrote_and_refuses_another_model(tmp_path) -> None:
    path = tmp_path / "model.safetensors"
    model, other = small_model("decoder", seed=1), small_model("decoder", seed=2)
    save_weights(model, path)
    load_weights(other, path)
    assert all(map(torch.equal, model.parameters(), other.parameters()))
    for wrong in (small_model("decoder", d_model=64), small_model("encoder_decoder")):
        with pytest.raises(ValueError, match="does not fit this model"):
            load_weights(wrong, path)


def test_each_epoch_has_every_example_once_in_batches_of_similar_lengths() -> None:
    """Rows of 23 lengths are in batches of four, which are as alike as can be."""
    task = Classification(["a"], small_tokenizer(), 64)
    rows = [{"id": str(i), "text": "name " * (i + 1), "label": "a"} for i in range(23)]
    data, epochs = FinetuningData(task.encode(rows), task, batch_examples=4, seed=1), []
    assert data.steps_per_epoch == 6
    for epoch in range(2):
        batches = [data.micro_batches(6 * epoch + step)[0] for step in range(6)]
        lengths = [batch.document_ids.sum(dim=1).tolist() for batch in batches]
        together = sorted(lengths, key=min)
        assert [length for some in together for length in some] == sorted(sum(lengths, []))
        assert len({*sum(lengths, [])}) == 23 and max(map(len, lengths)) == 4
        epochs.append(lengths)
    assert epochs[0] != epochs[1]
