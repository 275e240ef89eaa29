"""Intervals where each fine-tuning seed draws the splits (``Sample.of_draws``)."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats

from stages.evaluation.statistics import Interval, difference
from stages.evaluation.variance import Sample

COLUMNS = np.linspace(0.5, 0.0, 20)  # half the distance of the classes' means
OVERLAP = 1 / 8  # a tenth of the rows is tested, eight tenths are learnt from


def sample(values: np.ndarray, *, overlap: float = OVERLAP) -> Sample:
    """Returns a sample from ``values`` (pretraining x fine-tuning seeds)."""
    keys = tuple(product(range(values.shape[0]), range(values.shape[1])))
    return Sample.of_draws(keys, values.reshape(-1), "pretrained here", overlap)


def against(a: Sample, b: Sample) -> Interval:
    return difference(a, b, confidence=0.95)


def width(interval: Interval) -> float:
    assert interval.low is not None and interval.high is not None
    return interval.high - interval.low


def test_difference_of_draws_is_the_corrected_resampled_t_test() -> None:
    a, b = np.random.default_rng(1).normal(size=(2, 1, 5))
    interval = against(sample(a), sample(b))
    spread = (a - b).std(ddof=1) * (1 / 5 + OVERLAP) ** 0.5
    t = (a - b).mean() / spread
    assert interval.value == pytest.approx((a - b).mean())
    assert interval.p_value == pytest.approx(2 * stats.t(4).sf(abs(t)))
    assert width(interval) == pytest.approx(2 * stats.t(4).ppf(0.975) * spread)
    assert interval.test == "corrected resampled t"
    assert interval.seeds_needed is None


def test_difference_of_draws_adds_the_variance_of_pretraining_seeds() -> None:
    """A model with three checkpoints is compared, draw by draw, with one that has none."""
    rng = np.random.default_rng(3)
    draws = rng.normal(size=5)
    a = draws + 3 * rng.normal(size=(3, 1)) + 0.1 * rng.normal(size=(3, 5))
    b = draws + 0.1 * rng.normal(size=(1, 5))
    interval = against(sample(a), replace(sample(b), checkpoints="none"))
    of_seeds = a.mean(axis=1).var(ddof=1) / 3
    residuals = a - a.mean(axis=0) - a.mean(axis=1, keepdims=True) + a.mean()
    of_draws = (a.mean(axis=0) - b[0]).var(ddof=1) * (1 / 5 + OVERLAP)
    alone = max(of_draws - (residuals**2).sum() / 8 / 15, 0)
    assert interval.variance is not None
    assert interval.variance.total == pytest.approx(of_seeds + alone)


# Coverage, where the correlation of draws is that of real rows and classifiers


def differences_of_accuracy(rng: np.random.Generator, *, rows: int, draws: int) -> list[np.ndarray]:
    """Returns the accuracies of two classifiers on draws of 80 % of the rows for training and 10 %
    for test. They predict the class with the nearer mean, in 12 columns and in 6."""
    labels = rng.integers(0, 2, rows)
    columns = rng.normal(size=(rows, len(COLUMNS))) + np.where(labels[:, None], COLUMNS, -COLUMNS)
    order = [rng.permutation(rows) for _ in range(draws)]
    train, test = rows * 8 // 10, rows * 9 // 10

    def accuracy(seen: np.ndarray, drawn: np.ndarray) -> float:
        learnt, tested = drawn[:train], drawn[test:]
        zero, one = (seen[learnt][labels[learnt] == label].mean(axis=0) for label in (0, 1))
        predicted = (seen[tested] - (zero + one) / 2) @ (one - zero) > 0
        return float((predicted == labels[tested]).mean())

    return [
        np.array([[accuracy(columns[:, :number], drawn) for drawn in order]]) for number in (12, 6)
    ]


def coverage(
    rng: np.random.Generator, *, studies: int, rows: int, draws: int
) -> tuple[float, float]:
    """Returns how often the interval holds the mean difference of other studies, with the
    correction for the overlap of draws and without it."""
    every = [differences_of_accuracy(rng, rows=rows, draws=draws) for _ in range(2 * studies)]
    truth = float(np.mean([a - b for a, b in every[studies:]]))

    def covered(overlap: float) -> float:
        intervals = [
            against(*(sample(x, overlap=overlap) for x in pair)) for pair in every[:studies]
        ]
        ends = [(i.low, i.high) for i in intervals if i.low is not None and i.high is not None]
        return float(np.mean([low <= truth <= high for low, high in ends]))

    return covered(OVERLAP), covered(0.0)


@pytest.mark.parametrize(("rows", "draws"), [(300, 5), (600, 10)])
def test_interval_covers_the_truth_only_if_it_is_corrected(rows: int, draws: int) -> None:
    corrected, uncorrected = coverage(
        np.random.default_rng(1), studies=1_000, rows=rows, draws=draws
    )
    assert uncorrected < 0.935 < 0.94 <= corrected < 0.985
