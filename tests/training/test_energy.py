import pytest

from stages.training.energy import Energy


def test_energy_of_an_hour_of_two_cores() -> None:
    """24 Wh at 473 g a kWh."""
    energy = Energy.of(2 * 3600, 0.0)
    assert energy is not None
    assert energy.joules == 24 * 3600
    assert energy.co2e_g == pytest.approx(11.352)


def test_energy_adds_what_a_gpu_counted_and_guesses_nothing() -> None:
    energy = Energy.of(10.0, 500.0)
    assert energy is not None and energy.joules == 620
    assert Energy.of(10.0, None) is None
