import math

import numpy as np
import pytest

from stages.core.seeding import stream
from stages.reporting.comparison.power_law import fit, num_sizes

SIZES = [300_000, 1_000_000, 3_000_000, 10_000_000]
A, B = 2.5, 0.12


def drawn(trial: int, noise: float, num_seeds: int = 5) -> list[list[float]]:
    """Errors of the law of ``A`` and ``B``, of each size those of the seeds."""
    rng = stream(trial, "power law")
    return [list(A * n**-B * np.exp(rng.normal(0, noise, num_seeds))) for n in SIZES]


def test_points_of_a_law_give_it_back() -> None:
    law = fit(SIZES, drawn(1, noise=0.0), confidence=0.95)
    assert law is not None
    assert law.factor == pytest.approx(A) and law.exponent.value == pytest.approx(B)
    assert law.error(50_000) == pytest.approx([A * 50_000**-B] * 3)  # no spread, no band
    assert law.exponent.low is None


@pytest.mark.slow
def test_the_interval_covers_the_truth_as_often_as_asked() -> None:
    """In 400 studies, within four standard errors of 0.9."""
    num_studies, at = 400, 2_000_000
    exponents = heights = 0
    for trial in range(num_studies):
        law = fit(SIZES, drawn(trial, noise=0.05), confidence=0.9)
        assert law is not None and law.exponent.low is not None and law.exponent.high is not None
        exponents += law.exponent.low <= B <= law.exponent.high
        _, low, high = law.error(at)
        heights += low <= A * at**-B <= high
    margin = 4 * math.sqrt(0.9 * 0.1 / num_studies)
    assert exponents / num_studies == pytest.approx(0.9, abs=margin)
    assert heights / num_studies == pytest.approx(0.9, abs=margin)


def test_the_line_is_that_of_least_squares_through_the_mean_logarithms() -> None:
    errors = drawn(3, noise=0.2)
    law = fit(SIZES, errors, confidence=0.95)
    slope, height = np.polyfit(np.log(SIZES), np.log(errors).mean(axis=1), 1)
    assert law is not None
    assert law.exponent.value == pytest.approx(-slope)
    assert law.factor == pytest.approx(math.exp(height))


@pytest.mark.parametrize(
    "sizes, errors",
    [
        ([1000, 2000], [[0.5, 0.4], [0.3, 0.2]]),
        ([1000, 2000, 2001], [[0.5, 0.4], [0.3, 0.2], [0.3, 0.2]]),
        ([1000, 2000, 4000], [[0.5], [0.3], [0.2]]),
        ([1000, 2000, 4000], [[0.5, 0.4], [0.3, 0.2], [0.1, 0.0]]),
    ],
    ids=["two sizes", "two that differ", "one seed", "an error of 0"],
)
def test_there_is_none_through_too_little(sizes: list[int], errors: list[list[float]]) -> None:
    assert fit(sizes, errors, confidence=0.95) is None


def test_sizes_that_hardly_differ_are_one() -> None:
    assert num_sizes([]) == 0
    assert num_sizes([2_563_072, 2_564_072]) == 1
    assert num_sizes([300, 100, 200, 100]) == 3
