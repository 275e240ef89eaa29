import pytest

from stages.training.energy import Energy


def test_an_hour_of_two_cores_by_hand() -> None:
    """24 Wh at 473 g a kWh."""
    energy = Energy.of(2 * 3600, 0.0)
    assert energy is not None
    assert energy.joules == 24 * 3600
    assert energy.co2e_g == pytest.approx(11.352)


def test_what_a_gpu_counted_is_added_and_what_none_knows_is_not_guessed() -> None:
    energy = Energy.of(10.0, 500.0)
    assert energy is not None and energy.joules == 620
    assert Energy.of(10.0, None) is None
