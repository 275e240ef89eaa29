"""The schedule of the learning rate."""

import pytest

from stages.core.params import Optimisation
from stages.training.loop import lr_factor


@pytest.mark.parametrize("decay", ["linear", "cosine"])
def test_schedule_rises_to_1_and_falls_to_0(decay) -> None:
    schedule = Optimisation(lr=1.0, warmup_fraction=0.1, decay=decay)
    factors = [lr_factor(schedule, step, 100) for step in range(101)]
    assert factors[0] == pytest.approx(1 / 11)
    assert max(factors) == factors[10] == pytest.approx(1.0)
    assert factors[:11] == sorted(factors[:11])
    assert factors[10:] == sorted(factors[10:], reverse=True)
    assert factors[100] == pytest.approx(0.0)


def test_constant_schedule_stays_after_warm_up() -> None:
    schedule = Optimisation(lr=1.0, warmup_fraction=0.0, decay="constant")
    assert {lr_factor(schedule, step, 10) for step in range(10)} == {1.0}
