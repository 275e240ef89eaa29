"""Checkpoints: an interrupted training equals an uninterrupted one; wrong weights are refused."""

from pathlib import Path

import pytest
import torch

from stages.optimizers.adamw import AdamW
from stages.training.checkpoint import Resumable, load_weights, save_weights
from stages.training.loop import Step, mean_loss, train
from tests.small import headless, small_model
from tests.training.test_loop import CPU, SCHEDULE, data_of, objective_of


class Killed(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize(("dropout", "optimizer"), [(0.0, "adamw"), (0.2, "adamw"), (0.0, "muon")])
def test_train_resumes_bit_for_bit(tmp_path, monkeypatch, dropout, optimizer) -> None:
    monkeypatch.setattr("stages.training.loop.CHECKPOINT_SECONDS", 0.0)
    schedule = SCHEDULE.model_copy(update={"optimizer": {"name": optimizer}})

    def run(name: str, killed_at: int | None) -> tuple[dict[str, torch.Tensor], list[Step]]:
        model = headless(small_model("encoder", config={"mlp_dropout": dropout}))
        history: list[Step] = []
        for step in train(
            model,
            objective_of("mlm"),
            data_of("mlm"),
            schedule,
            num_steps=12,
            seed=1,
            device=CPU,
            history=history,
            resumable=Resumable("run", name, scratch=tmp_path / name),
        ):
            if step.step == killed_at:
                raise Killed
            if step.step % 3 == 0:
                step.validation_loss = mean_loss(model, objective_of("mlm"), validation, CPU)
        return dict(model.named_parameters()), history

    validation = data_of("mlm").micro_batches(100)
    weights, history = run("uninterrupted", None)
    with pytest.raises(Killed):
        run("interrupted", 7)
    resumed_weights, resumed_history = run("interrupted", None)
    assert resumed_history == history
    assert [step.validation_loss is not None for step in history] == [False, False, True] * 4
    assert all(torch.equal(weights[name], resumed_weights[name]) for name in weights)


def test_resumable_saves_no_frozen_weights_and_goes_with_the_fingerprint(tmp_path: Path) -> None:
    """A resumed process has the frozen weights, which may be nearly all of a large model."""
    model = headless(small_model("encoder"))
    trained, *frozen = model.parameters()
    for weight in frozen:
        weight.requires_grad_(False)
    optimizer = AdamW(model, 0.0, torch.float32)
    Resumable("run", "a", scratch=tmp_path).save({"step": 5}, model, optimizer)
    before = trained.detach().clone()
    with torch.no_grad():
        trained.zero_()
        frozen[0].fill_(7.0)
    assert Resumable("run", "b", scratch=tmp_path).load(model, optimizer) is None
    record = Resumable("run", "a", scratch=tmp_path).load(model, optimizer)
    assert record is not None and record["step"] == 5
    assert torch.equal(trained, before) and frozen[0].eq(7.0).all()


def test_load_weights_restores_what_save_weights_wrote_and_refuses_another_model(tmp_path) -> None:
    path = tmp_path / "model.safetensors"
    model, other = small_model("decoder", seed=1), small_model("decoder", seed=2)
    save_weights(model, path)
    load_weights(other, path)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    for wrong in (small_model("decoder", d_model=64), small_model("encoder_decoder")):
        with pytest.raises(ValueError, match="does not fit this model"):
            load_weights(wrong, path)
