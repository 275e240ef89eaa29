"""The agreement of two rankings, compared with scipy and on planted rankings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import weightedtau

from stages.evaluation.rank_agreement import agreement, weighted_tau


@given(
    st.integers(2, 9).flatmap(
        lambda n: st.tuples(*[st.lists(st.integers(0, 5), min_size=n, max_size=n)] * 3)
    )
)
def test_weighted_tau_is_that_of_scipy(drawn: tuple[list[int], list[int], list[int]]) -> None:
    """For scipy, a run is repeated as often as a resample has it. Values have ties."""
    estimate, score, counts = map(np.array, drawn)
    if counts.sum() < 2:
        return
    taus = weighted_tau(estimate * 1.0, score * 1.0, np.stack([counts, np.ones_like(counts)]))
    for value, times in zip(taus, (counts, np.ones_like(counts)), strict=True):
        copies = np.repeat(estimate, times), np.repeat(score, times)
        expected = weightedtau(*copies)[0]
        assert value == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_agreement_of_equal_and_reversed_orders() -> None:
    score = [0.1, 0.5, 0.3, 0.9, 0.7]
    runs = ["a", "b", "c", "d", "e"]
    for sign in (1, -1):
        tau, low, high = agreement(
            [sign * 10 * value for value in score], score, runs, confidence=0.95, seed=1
        )
        assert (tau, low, high) == (sign, sign, sign)


def test_agreement_of_too_few_runs_has_no_number() -> None:
    score = [0.1, 0.5, 0.3]
    nothing = (None, None, None)
    assert agreement(score, score, ["a", "b", "c"], confidence=0.95, seed=1) == nothing
    assert agreement([1.0] * 5, [1, 2, 3, 4, 5], list("abcde"), confidence=0.95, seed=1) == nothing
    tau, *interval = agreement([1, 2, 3, 4], [1, 2, 4, 3], list("aabc"), confidence=0.95, seed=1)
    assert tau is not None and interval == [None, None]


def test_agreement_draws_the_seeds_of_a_run_together() -> None:
    """Five copies of each run give no more evidence than one, so the interval stays as wide."""
    rng = np.random.default_rng(3)
    score = rng.normal(size=8)
    estimate = score + rng.normal(size=8)
    groups = list("abcdefgh")
    _, low, high = agreement([*estimate], [*score], groups, confidence=0.95, seed=1)
    many = np.repeat(estimate, 5), np.repeat(score, 5)
    many = [values + 1e-9 * np.arange(40) for values in many]
    copies, truths = ([*values] for values in many)
    together = [*np.repeat(groups, 5)]
    _, low_5, high_5 = agreement(copies, truths, together, confidence=0.95, seed=1)
    assert low is not None and high is not None and low_5 is not None and high_5 is not None
    assert high_5 - low_5 > 0.7 * (high - low)
    alone = [str(i) for i in range(40)]
    _, low_40, high_40 = agreement(copies, truths, alone, confidence=0.95, seed=1)
    assert low_40 is not None and high_40 is not None
    assert high_40 - low_40 < 0.7 * (high - low)


def test_agreement_covers_the_truth_about_as_often_as_it_says() -> None:
    """The interval of 10 runs covers the truth in at least 80 % of draws, below the nominal
    95 %."""
    rng = np.random.default_rng(4)

    def drawn(n: int) -> tuple[np.ndarray, np.ndarray]:
        score = rng.normal(size=n)
        return score + 1.2 * rng.normal(size=n), score

    # The weights depend on the number of runs, so the truth is the mean tau of equally many runs.
    truth = np.mean(np.array([weightedtau(*drawn(10)) for _ in range(300)])[:, 0])
    held = 0
    for _ in range(100):
        estimate, score = drawn(10)
        _, low, high = agreement([*estimate], [*score], list("abcdefghij"), confidence=0.95, seed=1)
        assert low is not None and high is not None
        held += low <= truth <= high
    assert held >= 80
