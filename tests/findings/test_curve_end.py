"""The slope at the end of a loss curve."""

import numpy as np
import pytest

from stages.findings.curve_end import slope_at_end


def test_slope_of_a_loss_that_falls_equally_per_doubling() -> None:
    """The slope is right for any number of validations; under noise it equals numpy's fit."""
    for num in (2, 3, 4, 8, 20):
        steps = [-(-160 * k // num) for k in range(1, num + 1)]
        slope = slope_at_end({s: 9 - 0.31 * np.log2(s) for s in steps})
        assert slope == pytest.approx(-0.31)
    rng = np.random.default_rng(1)
    noisy = {s: 9 - 0.31 * np.log2(s) + rng.normal(0, 0.05) for s in range(10, 161, 10)}
    half = [s for s in noisy if s >= 80]
    expected = np.polyfit(np.log2(half), [noisy[s] for s in half], 1)[0]
    assert slope_at_end(noisy) == pytest.approx(expected)


def test_slope_ignores_the_first_half() -> None:
    end = {80: 3.0, 120: 3.0, 160: 3.0}
    assert slope_at_end(end) == slope_at_end({20: 9.0, 79: 8.0} | end) == 0
    assert slope_at_end({160: 3.0}) is None and slope_at_end({20: 9.0, 160: 3.0}) is None
