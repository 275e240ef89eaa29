"""A training at each of several rates: the best is kept, and interrupted equals uninterrupted."""

from typing import Any

import pytest
import torch

from stages.models._heads import ModelWithHead
from stages.training.checkpoint import Resumable
from stages.training.loop import Step, mean_loss, train
from stages.training.tries import Try, try_each
from tests.small import headless, small_model
from tests.training.test_loop import CPU, SCHEDULE, data_of, objective_of

pytestmark = pytest.mark.slow

RATES = [1e-4, 5e-3, 1e-3]
NUM_STEPS = 8


class Killed(Exception):
    pass


def loss_of(model: ModelWithHead) -> float:
    return mean_loss(model, objective_of("mlm"), data_of("mlm").micro_batches(100), CPU)


def trained(
    folder: Any, rates: list[float], *, kill: tuple[float, int] | None = None
) -> tuple[ModelWithHead, list[Try], list[tuple[float, int]]]:
    """Trains a small model at each rate, until it is killed at (rate, step). Returns it with its
    tries and the steps (rate, step) of this process."""
    model, done = headless(small_model("encoder")), list[tuple[float, int]]()

    def attempt(rate: float, history: list[Step], resumable: Resumable) -> None:
        for step in train(
            model,
            objective_of("mlm"),
            data_of("mlm"),
            SCHEDULE.model_copy(update={"lr": rate}),
            num_steps=NUM_STEPS,
            seed=1,
            device=CPU,
            history=history,
            resumable=resumable,
        ):
            done.append((rate, step.step))
            if done[-1] == kill:
                raise Killed
            if step.step % 4 == 0:
                step.validation_loss = loss_of(model)

    return model, try_each(model, rates, Resumable("run", "a", scratch=folder), attempt), done


def same(one: ModelWithHead, other: ModelWithHead) -> bool:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(mine, theirs) for mine, theirs in pairs)


@pytest.mark.parametrize("kill", [(5e-3, 3), (5e-3, 1), (1e-3, 6)])
def test_try_each_resumes_in_a_later_rate(tmp_path, monkeypatch, kill) -> None:
    monkeypatch.setattr("stages.training.loop.CHECKPOINT_SECONDS", 0.0)
    whole, tries, _ = trained(tmp_path / "whole", RATES)
    with pytest.raises(Killed):
        trained(tmp_path / "killed", RATES, kill=kill)
    resumed, again, done = trained(tmp_path / "killed", RATES)
    assert done[0] == kill, "what was done before is not done again"
    assert again == tries and same(resumed, whole)
