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
    SINGLE,
    TRIALS,
    Interval,
    difference,
    holm,
    mean,
)
from stages.evaluation.variance import Checkpoints, Prior, Sample


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


def against(a: Sample, b: Sample, *, confidence: float = 0.95) -> Interval:
    return difference(a, b, confidence=confidence)


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


def test_difference_pairs_samples_with_the_same_seeds() -> None:
    rng = stream(1, "pairs")
    a, b = sample(draw(rng, 2, 2)), sample(draw(rng, 2, 2))
    turned = Sample(b.keys[::-1], b.values[::-1], b.rows[::-1], b.checkpoints)
    assert against(a, b).test == "paired t" == against(a, turned).test
    assert ends(against(a, b)) == pytest.approx(ends(against(a, turned)))
    scratch = sample(draw(rng, 2, 2), checkpoints="none")
    assert against(a, scratch).test == "paired t" == against(scratch, a).test
    for other in (sample(draw(rng, 2, 2), first_seed=2), sample(draw(rng, 3, 2))):
        assert against(a, other).test == "Welch's t"
    assert against(a, sample(draw(rng, 2, 1))).test == "Welch's t"  # other fine-tuning seeds


def test_difference_of_pairs_cancels_a_shared_shift_per_seed() -> None:
    rng = stream(1, "shift")
    shifts = rng.normal(0, 0.2, (1, 6))
    a = sample(0.5 + shifts + rng.normal(0, 0.001, 6), checkpoints="published")
    b = sample(0.49 + shifts, checkpoints="published")
    paired = against(a, b)
    welch = against(a, sample(0.49 + shifts, checkpoints="published", first_seed=2))
    assert paired.test == "paired t" and paired.excludes_zero
    assert welch.test == "Welch's t" and not welch.excludes_zero
    assert paired.value == pytest.approx(welch.value)


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


def test_variance_is_at_least_that_of_rows_and_of_seeds() -> None:
    rng = stream(1, "less")
    for _ in range(50):
        rows = (rng.random((3, 1, 30)) < 0.5).astype(float)
        variance = mean(sample(rows.mean(2), rows=rows), confidence=0.95).variance
        assert variance is not None
        of_rows = rows.mean((0, 1)).var(ddof=1) / 30
        of_seeds = rows.mean((1, 2)).var(ddof=1) / 3
        assert variance.total >= max(of_rows, of_seeds) - 1e-12


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


def test_difference_of_fixed_checkpoints_varies_with_their_trials_alone() -> None:
    """Compares three checkpoints that are far apart with a single one."""
    far = sample([[0.1, 0.11], [0.5, 0.51], [0.9, 0.91]])
    one = sample([[0.5, 0.51]])
    interval = against(far, one)
    low, high = ends(interval)
    assert interval.basis == CHECKPOINTS and high - low < 0.1
    low, high = ends(against(far, sample([[0.5, 0.51], [0.5, 0.52]])))
    assert high - low > 1


def test_mean_and_difference_of_one_trial_have_no_interval() -> None:
    one, five = sample([[0.5]]), sample([[0.1, 0.2, 0.3, 0.4, 0.5]])
    for interval in (mean(one, confidence=0.95), against(one, one), against(one, five)):
        assert (interval.low, interval.high, interval.p_value) == (None, None, None)
        assert interval.basis == SINGLE and not interval.excludes_zero
        assert interval.seeds_needed is None


def test_mean_and_difference_of_equal_predictions_have_no_interval() -> None:
    rng = stream(1, "agree")
    rows = np.tile(rng.random(40), (1, 5, 1))
    same = sample(np.full((1, 5), rows.mean()), rows=rows, checkpoints="none")
    flat = sample(np.full((1, 5), 0.3), checkpoints="none")
    for interval in (against(same, same), mean(flat, confidence=0.95), against(flat, flat)):
        assert (interval.low, interval.high, interval.p_value) == (None, None, None)
        assert interval.basis == AGREEING and not interval.excludes_zero
    assert against(flat, flat).value == 0
    assert mean(same, confidence=0.95).basis == ROWS
    varied = sample([[0.1, 0.2, 0.3, 0.4, 0.5]], checkpoints="none")
    assert against(varied, flat).low is not None  # it is enough that one side varies


# More seeds and rows


def test_seeds_needed_are_those_of_the_tables() -> None:
    """Effects are 0.2, 0.5 and 0.8 standard deviations, the level 5 % and the power 80 % (Cohen
    1988, tables 2.4.1 for two samples and 2.3.5 for one, computed by G*Power)."""

    def needed(effect: float, sides: int, confidence: float = 0.95) -> int | None:
        of_one = np.array([[-1.0, 0.0, 1.0]])  # standard deviation 1
        a = sample(of_one + effect, checkpoints="none")
        if sides == 1:
            return mean(a, confidence=confidence).seeds_needed
        b = sample(of_one, checkpoints="none", first_seed=2)
        return against(a, b, confidence=confidence).seeds_needed

    for effect, two_samples, paired in ((0.2, 394, 199), (0.5, 64, 34), (0.8, 26, 15)):
        assert needed(effect, 2) == two_samples
        assert needed(-effect, 1) == paired
    assert needed(0.0, 1) is None
    assert needed(1e-4, 1) is None
    assert needed(5.0, 1) == 3
    assert needed(0.8, 1, confidence=0.99) == 22


def test_seeds_needed_is_none_if_rows_are_too_few() -> None:
    rng = stream(1, "too few rows")
    rows = 0.1 + rng.normal(0, 1, 20) + rng.normal(0, 0.1, (3, 1, 20))
    interval = mean(sample(rows.mean(2), rows=rows), confidence=0.95)
    assert not interval.excludes_zero and interval.seeds_needed is None


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1, 1]
    assert holm([]) == []


def test_prior_weighs_by_its_degrees_of_freedom() -> None:
    rng = stream(1, "prior")
    a, b = sample(draw(rng, 3, 1)), sample(draw(rng, 3, 1))
    alone = difference(a, b, confidence=0.95)
    assert difference(a, b, confidence=0.95, prior=Prior(9.0, 0.0)) == alone
    decided = difference(a, b, confidence=0.95, prior=Prior(0.04, 1e9)).variance
    assert decided is not None
    assert decided.between.units == pytest.approx(0.04 / 3) and decided.df > 1e8


def test_prior_adds_its_degrees_of_freedom() -> None:
    """Smyth 2004, eq. 3, gives (d0 s0^2 + d s^2) / (d0 + d)."""
    a, b = sample([[0.1], [0.2], [0.6]]), sample([[0.1], [0.1], [0.2]])
    own = float(np.var([0.0, 0.1, 0.4], ddof=1))
    variance = difference(a, b, confidence=0.95, prior=Prior(0.01, 3.0)).variance
    assert variance is not None and variance.between.df == 5 and variance.between.prior_df == 3
    assert variance.between.units == pytest.approx((3 * 0.01 + 2 * own) / 5 / 3)
