"""A training at each of several rates: the best is kept, and interrupted equals uninterrupted."""

import math

import pytest
import torch

from stages.training.checkpoint import Resumable
from stages.training.loop import Diverged, Step, mean_loss, train
from stages.training.tries import best, try_each
from tests.small import headless, small_model
from tests.training.test_loop import CPU, SCHEDULE, data_of, objective_of

pytestmark = pytest.mark.slow

RATES = [1e-4, 5e-3, 1e-3]
NUM_STEPS = 8


class Killed(Exception):
    pass


class Trained:
    """A small model that is trained at each rate; training is killed at ``kill`` (rate, step)."""

    def __init__(
        self, folder, rates: list[float], *, kill: tuple[float, int] | None = None
    ) -> None:
        self.model = headless(small_model("encoder"))
        self.validation = data_of("mlm").micro_batches(100)
        self.begun: list[tuple[float, int]] = []  # rate, first step in this process
        self._kill = kill
        resumable = Resumable("run", "fingerprint", scratch=folder)
        self.tries = try_each(self.model, rates, resumable, self._attempt)

    def _attempt(self, rate: float, history: list[Step], resumable: Resumable) -> None:
        steps = train(
            self.model,
            objective_of("mlm"),
            data_of("mlm"),
            SCHEDULE.model_copy(update={"lr": rate}),
            num_steps=NUM_STEPS,
            seed=1,
            device=CPU,
            history=history,
            resumable=resumable,
        )
        for number, step in enumerate(steps):
            if not number:
                self.begun.append((rate, step.step))
            if (rate, step.step) == self._kill:
                raise Killed
            if step.step % 4 == 0:
                step.validation_loss = self.loss()

    def loss(self) -> float:
        return mean_loss(self.model, objective_of("mlm"), self.validation, CPU)

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        return dict(self.model.named_parameters())


def same(one: Trained, other: Trained) -> bool:
    assert one.weights.keys() == other.weights.keys()
    return all(torch.equal(one.weights[name], other.weights[name]) for name in one.weights)


def test_try_each_begins_anew_and_leaves_the_best_model(tmp_path) -> None:
    """The results equal those of each rate trained alone."""
    several = Trained(tmp_path / "several", RATES)
    alone = {rate: Trained(tmp_path / str(rate), [rate]) for rate in RATES}
    assert [each.rate for each in several.tries] == RATES
    for attempt in several.tries:
        assert attempt.history == alone[attempt.rate].tries[0].history
    chosen = best(several.tries)
    assert chosen.rate == 5e-3 != RATES[-1]
    assert (
        several.loss()
        == chosen.final_loss
        < min(t.final_loss for t in several.tries if t is not chosen)
    )
    assert same(several, alone[chosen.rate]) and not same(several, alone[RATES[-1]])


@pytest.mark.parametrize("kill", [(5e-3, 3), (5e-3, 1), (1e-3, 6)])
def test_try_each_resumes_in_a_later_rate(tmp_path, monkeypatch, kill) -> None:
    monkeypatch.setattr("stages.training.loop.CHECKPOINT_SECONDS", 0.0)
    whole = Trained(tmp_path / "whole", RATES)
    with pytest.raises(Killed):
        Trained(tmp_path / "killed", RATES, kill=kill)
    resumed = Trained(tmp_path / "killed", RATES)
    assert resumed.begun[0] == kill, "what was done before is not done again"
    assert resumed.tries == whole.tries and same(resumed, whole)
    again = Trained(tmp_path / "killed", RATES)
    assert again.begun == [] and again.tries == whole.tries and same(again, whole)


def test_try_each_refuses_only_if_all_rates_diverge(tmp_path, capsys) -> None:
    with_one = Trained(tmp_path / "one", [1e30, 5e-3])
    assert "1e+30" in capsys.readouterr().err
    diverged, other = with_one.tries
    assert diverged.diverged and math.isinf(diverged.final_loss)
    assert 0 < len(diverged.history) < NUM_STEPS
    assert best(with_one.tries) is other and same(with_one, Trained(tmp_path / "alone", [5e-3]))
    with pytest.raises(ValueError, match=r"^lr: .*1e\+30, 1e\+29") as caught:
        Trained(tmp_path / "all", [1e30, 1e29])
    assert not isinstance(caught.value, Diverged)
    with pytest.raises(Diverged):
        Trained(tmp_path / "single", [1e30])
