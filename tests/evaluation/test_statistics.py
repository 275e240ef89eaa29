from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats

from stages.core.seeding import stream
from stages.evaluation.statistics import (
    AGREEING,
    CHECKPOINTS,
    PRETRAINING,
    ROWS,
    TRIALS,
    Interval,
    difference,
    holm,
    mean,
)
from stages.evaluation.variance import Checkpoints, Sample


def sample(
    values: np.ndarray | list[list[float]],
    *,
    rows: np.ndarray | None = None,
    checkpoints: Checkpoints = "pretrained here",
    first_seed: int = 1,
) -> Sample:
    """Returns a sample from ``values`` (pretraining x fine-tuning seeds). Without ``rows`` (seeds x
    seeds x rows), all rows of a trial have its value, so that nothing varies with rows."""
    values = np.asarray(values, dtype=float)
    seeds, again = values.shape
    keys = tuple((first_seed + p, f) for p in range(seeds) for f in range(again))
    flat = values.reshape(-1)
    scores = np.repeat(flat[:, None], 10, axis=1) if rows is None else rows.reshape(len(flat), -1)
    return Sample(keys, flat, scores, checkpoints)


def draw(rng: np.random.Generator, seeds: int, again: int, *, centre: float = 0.5) -> np.ndarray:
    """Draws scores that vary with the pretraining seed and, less, with the fine-tuning seed."""
    return rng.normal(centre, 0.02, (seeds, 1)) + rng.normal(0, 0.01, (seeds, again))


against = partial(difference, confidence=0.95)


def ends(interval: Interval) -> tuple[float, float]:
    assert interval.low is not None and interval.high is not None
    return interval.low, interval.high


# Without variation of rows: the tests of Student and Welch


def test_mean_has_pretraining_seeds_or_the_trials_of_one_as_units() -> None:
    """Runs from scratch also have pretraining seeds as units: a seed draws all runs' labels."""
    values, one_seed = [[0.1, 0.2], [0.3, 0.5]], [[0.1, 0.2, 0.4]]
    for of_case, units, basis in (
        (sample(values), [0.15, 0.4], PRETRAINING),
        (sample(values, checkpoints="none"), [0.15, 0.4], TRIALS),
        (sample(one_seed, checkpoints="none"), one_seed[0], TRIALS),
    ):
        interval = mean(of_case, confidence=0.95)
        expected: Any = stats.ttest_1samp(units, 0)
        assert interval.value == pytest.approx(np.mean(units))
        assert ends(interval) == pytest.approx(tuple(expected.confidence_interval(0.95)))
        assert (of_case.num_units, interval.basis) == (len(units), basis)


@pytest.mark.parametrize("confidence", [0.9, 0.99])
def test_difference_without_variation_of_rows_is_that_of_scipy(confidence: float) -> None:
    rng = stream(1, "scipy")
    a, b = draw(rng, 4, 3), draw(rng, 5, 3)
    expected: Any = stats.ttest_ind(a.mean(1), b.mean(1), equal_var=False)
    welch = against(sample(a), sample(b, first_seed=10), confidence=confidence)
    assert welch.test == "Welch's t" and welch.p_value == pytest.approx(expected.pvalue, rel=1e-6)
    assert ends(welch) == pytest.approx(tuple(expected.confidence_interval(confidence)))

    a, b = draw(rng, 5, 3), draw(rng, 5, 3)
    expected = stats.ttest_rel(a.mean(1), b.mean(1))
    paired = against(sample(a), sample(b), confidence=confidence)
    assert paired.test == "paired t" and paired.p_value == pytest.approx(expected.pvalue, rel=1e-6)
    assert ends(paired) == pytest.approx(tuple(expected.confidence_interval(confidence)))


# Rows


def test_difference_by_rows_alone_is_the_paired_t_of_rows() -> None:
    """All seeds agree on both sides, so that only rows vary."""
    rng = stream(1, "rows")
    one, other = rng.random((2, 300)) < 0.7
    sides = [
        sample(np.full((1, 3), rows.mean()), rows=np.tile(rows, (1, 3, 1)), checkpoints="none")
        for rows in (one.astype(float), other.astype(float))
    ]
    expected: Any = stats.ttest_rel(one.astype(float), other.astype(float))
    interval = against(*sides)
    assert interval.basis == ROWS and interval.p_value == pytest.approx(expected.pvalue, rel=1e-6)
    assert ends(interval) == pytest.approx(tuple(expected.confidence_interval(0.95)))


def test_variance_is_that_of_a_crossed_analysis() -> None:
    """Computes the variance by mean squares: (seeds + rows - interaction) / number of scores."""
    rng = stream(1, "crossed")
    seeds, num = 6, 40
    rows = rng.normal(0, 1, (seeds, 1)) + rng.normal(0, 3, num) + rng.normal(0, 1, (seeds, num))
    crossed = sample(rows.mean(1, keepdims=True), rows=rows[:, None])
    variance = mean(crossed, confidence=0.95).variance
    total = rows - rows.mean()
    of_seeds, of_rows = total.mean(1), total.mean(0)
    residual = total - of_seeds[:, None] - of_rows
    squares = (
        num * (of_seeds**2).sum() / (seeds - 1)
        + seeds * (of_rows**2).sum() / (num - 1)
        - (residual**2).sum() / ((seeds - 1) * (num - 1))
    )
    assert variance is not None and variance.total == pytest.approx(squares / (seeds * num))


def test_interval_at_the_level_of_its_p_value_ends_at_zero() -> None:
    rng = stream(1, "p")
    for seeds in (2, 3, 6):
        rows = rng.normal(size=(seeds, 2, 60))
        interval = mean(sample(draw(rng, seeds, 2, centre=0.1), rows=rows), confidence=0.95)
        assert interval.p_value is not None and interval.variance is not None
        again = interval.variance.half_width(1 - interval.p_value)
        assert again == pytest.approx(abs(interval.value), rel=1e-6)
        assert interval.excludes_zero == (interval.p_value < 0.05)


# What an interval covers


def test_difference_of_one_pretraining_seed_is_about_these_checkpoints() -> None:
    rng = stream(1, "one")
    one, three = sample(draw(rng, 1, 5)), sample(draw(rng, 3, 5))
    scratch = sample(draw(rng, 1, 5), checkpoints="none")
    published = sample(draw(rng, 1, 5), checkpoints="published")
    assert against(one, one).basis == AGREEING
    assert against(sample([[0.5]]), one).low is None  # a single trial
    for a, b, basis in (
        (one, sample(draw(rng, 1, 5)), CHECKPOINTS),
        (three, one, CHECKPOINTS),
        (scratch, one, CHECKPOINTS),
        (three, sample(draw(rng, 2, 5)), PRETRAINING),
        (three, scratch, PRETRAINING),
        (published, sample(draw(rng, 1, 5), checkpoints="published"), CHECKPOINTS),
        (scratch, sample(draw(rng, 1, 5), checkpoints="none"), TRIALS),
    ):
        assert against(a, b).basis == basis
    assert mean(one, confidence=0.95).basis == CHECKPOINTS


# Draws of the splits

OVERLAP = 1 / 8  # a tenth of the rows is tested, eight tenths are learnt from


def resampled(values: np.ndarray) -> Sample:
    """Returns a sample from ``values`` (pretraining seeds x draws)."""
    keys = tuple(product(range(values.shape[0]), range(values.shape[1])))
    return Sample.of_draws(keys, values.reshape(-1), "pretrained here", OVERLAP)


def test_difference_of_draws_is_the_corrected_resampled_t_test() -> None:
    a, b = np.random.default_rng(1).normal(size=(2, 1, 5))
    interval = against(resampled(a), resampled(b))
    spread = (a - b).std(ddof=1) * (1 / 5 + OVERLAP) ** 0.5
    t = (a - b).mean() / spread
    assert interval.value == pytest.approx((a - b).mean())
    assert interval.p_value == pytest.approx(2 * stats.t(4).sf(abs(t)))
    low, high = ends(interval)
    assert high - low == pytest.approx(2 * stats.t(4).ppf(0.975) * spread)
    assert interval.test == "corrected resampled t"


def test_difference_of_draws_adds_the_variance_of_pretraining_seeds() -> None:
    """A model with three checkpoints is compared, draw by draw, with one that has none."""
    rng = np.random.default_rng(3)
    draws = rng.normal(size=5)
    a = draws + 3 * rng.normal(size=(3, 1)) + 0.1 * rng.normal(size=(3, 5))
    b = draws + 0.1 * rng.normal(size=(1, 5))
    interval = against(resampled(a), replace(resampled(b), checkpoints="none"))
    of_seeds = a.mean(axis=1).var(ddof=1) / 3
    residuals = a - a.mean(axis=0) - a.mean(axis=1, keepdims=True) + a.mean()
    of_draws = (a.mean(axis=0) - b[0]).var(ddof=1) * (1 / 5 + OVERLAP)
    alone = max(of_draws - (residuals**2).sum() / 8 / 15, 0)
    assert interval.variance is not None
    assert interval.variance.total == pytest.approx(of_seeds + alone)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, None, 0.8]) == [1, None, 1] and holm([]) == []
