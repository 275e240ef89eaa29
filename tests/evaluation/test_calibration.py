"""Calibration, compared with a count by hand and with planted probabilities."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.core.seeding import stream
from stages.evaluation.calibration import calibration

ROWS = st.lists(st.tuples(st.booleans(), st.integers(0, 300)), min_size=1)


def error(right: list[bool], probabilities: list[float]) -> float:
    calibrated = calibration(["a"] * len(right), ["a" if r else "b" for r in right], probabilities)
    assert calibrated is not None
    return calibrated.calibration_error


@given(ROWS)
def test_calibration_error_is_that_of_bins_counted_one_by_one(rows: list[tuple[bool, int]]) -> None:
    """Probabilities are multiples of 1/300, so that each bin has twenty and all counts are
    exact."""
    expected = 0
    for m in range(15):
        inside = [(r, p) for r, p in rows if 20 * m < p <= 20 * (m + 1) or (m == 0 and p == 0)]
        expected += abs(sum(300 * r - p for r, p in inside))
    value = error([r for r, _ in rows], [p / 300 for _, p in rows])
    # Rounding may put a value at an edge into either bin, so edges are not drawn.
    if all(p % 20 for _, p in rows):
        assert value == pytest.approx(expected / 300 / len(rows), abs=1e-12)


def test_calibration_error_of_calibrated_probabilities_is_small() -> None:
    rng = stream(1, "calibrated")
    p = rng.uniform(0.3, 1, 40000)
    right = (rng.random(len(p)) < p).tolist()
    assert error(right, p.tolist()) < 0.01
    calibrated = calibration(["a"] * len(p), ["a" if r else "b" for r in right], p.tolist())
    assert calibrated is not None
    assert calibrated.accuracy == pytest.approx(np.mean(right))
    assert calibrated.mean_probability == pytest.approx(p.mean())


@pytest.mark.parametrize("shift", [-0.2, 0.1, 0.25])
def test_calibration_error_is_the_planted_over_or_underconfidence(shift: float) -> None:
    rng = stream(1, "shifted", str(shift))
    chance = rng.uniform(0.4, 0.7, 40000)
    right = (rng.random(len(chance)) < chance).tolist()
    assert error(right, (chance + shift).tolist()) == pytest.approx(abs(shift), abs=0.01)


def test_calibration_errors_of_both_signs_do_not_cancel() -> None:
    """One half has a probability of 0.9, the other of 0.1, and in both half of the predictions are
    right."""
    right, p = [True, False] * 100, [0.9, 0.9] * 50 + [0.1, 0.1] * 50
    assert error(right, p) == pytest.approx(0.4)
    assert np.mean(p) == pytest.approx(np.mean(right))


def test_calibration_has_bins_for_0_and_1() -> None:
    assert error([True, False], [1.0, 0.0]) == 0
    assert error([False, True], [1.0, 0.0]) == 1
    assert error([True], [math.nextafter(1, 0)]) == pytest.approx(0, abs=1e-12)


def test_calibration_is_none_without_all_probabilities() -> None:
    assert calibration(["a", "b"], ["a", "b"], [0.5, None]) is None
    assert calibration(["a", "b"], ["a", "b"], [None, None]) is None
