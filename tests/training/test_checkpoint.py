"""Checkpoints: an interrupted training equals an uninterrupted one; wrong weights are refused."""

import pytest
import torch
from safetensors import safe_open

from stages.optimizers.adamw import AdamW
from stages.training.checkpoint import Resumable, fingerprint, load_weights, save_weights
from stages.training.loop import Step, mean_loss, train
from stages.training.ranks import Ranks
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
        model = headless(small_model("encoder", dropout=dropout))
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


def test_resumable_of_another_fingerprint_clears_the_old_state(tmp_path) -> None:
    model = headless(small_model("encoder"))
    optimizer = AdamW(model, 0.0, torch.float32)
    Resumable("run", "a", scratch=tmp_path).save(5, model, optimizer, [{"loss": 1.0}])
    assert Resumable("run", "a", scratch=tmp_path).load(model, optimizer) == (5, [{"loss": 1.0}])
    assert Resumable("run", "b", scratch=tmp_path).load(model, optimizer) == (0, [])
    assert Resumable("run", "a", scratch=tmp_path).load(model, optimizer) == (0, [])


def test_resumable_saves_no_frozen_weights(tmp_path) -> None:
    """A resumed process has these weights, which would be nearly all of a large model's state."""
    model = headless(small_model("encoder"))
    kept = {"backbone.embedding.tokens.weight"}
    for name, weight in model.named_parameters():
        weight.requires_grad_(name in kept)
    optimizer = AdamW(model, 0.0, torch.float32)
    state = Resumable("run", "a", scratch=tmp_path)
    state.save(5, model, optimizer, [])
    with safe_open(tmp_path / "run/a.safetensors", framework="pt") as file:
        names = {key.removeprefix("model:") for key in file.keys()}  # noqa: SIM118
    assert {name for name in names if ":" not in name} == kept
    [weight] = (w for name, w in model.named_parameters() if name in kept)
    before = weight.detach().clone()
    with torch.no_grad():
        weight.zero_()
    assert state.load(model, optimizer) == (5, [])
    assert torch.equal(weight, before)


class BehindAnother(Ranks):
    """A rank other than the first; the first has seen no state."""

    def from_first(self, value: float) -> float:
        return 0.0


def test_resumable_exists_if_the_first_rank_sees_it(tmp_path) -> None:
    """Nodes may see a file on a network's file system at different times: ranks that decide for
    themselves could resume from different steps."""
    model = headless(small_model("encoder"))
    optimizer = AdamW(model, 0.0, torch.float32)
    Resumable("run", "a", scratch=tmp_path).save(5, model, optimizer, [])
    behind = Resumable("run", "a", scratch=tmp_path, ranks=BehindAnother(1, 2))
    assert not behind.exists()
    assert behind.load(model, optimizer) == (0, [])
    assert Resumable("run", "a", scratch=tmp_path).load(model, optimizer) == (5, [])


def test_resumable_counts_the_time_of_interrupted_processes(tmp_path, monkeypatch) -> None:
    now = 100.0
    monkeypatch.setattr("stages.training.checkpoint.time.monotonic", lambda: now)
    model = headless(small_model("encoder"))
    optimizer = AdamW(model, 0.0, torch.float32)
    first = Resumable("run", "a", scratch=tmp_path)
    now = 130.0
    first.save(5, model, optimizer, [])
    second = Resumable("run", "a", scratch=tmp_path)
    second.load(model, optimizer)
    now = 137.0
    assert second.wall_time_s() == 30 + 7


def test_resumable_of_several_trainings_shares_one_clock(tmp_path, monkeypatch) -> None:
    """A finished training is restored with its time; another fingerprint clears all trainings."""
    now = 100.0
    monkeypatch.setattr("stages.training.checkpoint.time.monotonic", lambda: now)
    model = headless(small_model("encoder"))
    optimizer = AdamW(model, 0.0, torch.float32)
    first = Resumable("run", "a", scratch=tmp_path)
    now = 130.0
    first.another("0").finish(model, [{"loss": 1.0}])
    assert first.another("1").load(model, optimizer) == (0, [])
    now = 150.0
    first.another("1").save(5, model, optimizer, [{"loss": 2.0}])

    now = 200.0
    second = Resumable("run", "a", scratch=tmp_path)
    assert second.another("0").finished() == [{"loss": 1.0}]
    assert second.another("1").finished() is None
    assert second.another("1").load(model, optimizer) == (5, [{"loss": 2.0}])
    assert second.another("2").finished() is None
    now = 207.0
    assert second.wall_time_s() == 50 + 7
    other = headless(small_model("encoder", seed=2))
    second.another("0").restore(other)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert Resumable("run", "b", scratch=tmp_path).load(model, optimizer) == (0, [])
    assert second.another("0").finished() is None


def test_fingerprint_sees_settings_names_and_contents(tmp_path) -> None:
    folder = tmp_path / "input"
    folder.mkdir()
    (folder / "a").write_text("one")
    first = fingerprint({"lr": 0.1}, [folder])
    assert fingerprint({"lr": 0.1}, [folder]) == first
    assert fingerprint({"lr": 0.2}, [folder]) != first
    (folder / "a").write_text("two")
    second = fingerprint({"lr": 0.1}, [folder])
    (folder / "a").rename(folder / "b")
    assert len({first, second, fingerprint({"lr": 0.1}, [folder])}) == 3


def test_load_weights_refuses_another_shape_or_name(tmp_path) -> None:
    path = tmp_path / "model.safetensors"
    save_weights(small_model("encoder"), path)
    with pytest.raises(ValueError, match="does not fit this model"):
        load_weights(small_model("encoder", d_model=64), path)
    with pytest.raises(ValueError, match="does not fit this model"):
        load_weights(small_model("encoder_decoder"), path)


def test_load_weights_restores_what_save_weights_wrote(tmp_path) -> None:
    path = tmp_path / "model.safetensors"
    model, other = small_model("decoder", seed=1), small_model("decoder", seed=2)
    save_weights(model, path)
    load_weights(other, path)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)
