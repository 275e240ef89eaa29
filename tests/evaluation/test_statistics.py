"""Intervals of means and differences, compared with SciPy's tests and analyses of variance; the
moderation of their variances, with planted spreads."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from scipy import stats

from stages.core.keys import CellKey
from stages.core.seeding import stream
from stages.evaluation.moderation import PRIOR_DF, PRIOR_DF_PER_OWN, Moderation
from stages.evaluation.statistics import (
    AGREEING,
    CHECKPOINTS,
    PRETRAINING,
    ROWS,
    TRIALS,
    difference,
    holm,
    mean,
)
from stages.evaluation.variance import Checkpoints, Sample

against = partial(difference, confidence=0.95)


def sample(
    values: np.ndarray | list[list[float]],
    checkpoints: Checkpoints = "pretrained here",
    *,
    rows: np.ndarray | None = None,
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


@pytest.mark.parametrize(
    ("values", "checkpoints", "units", "basis"),
    [
        ([[0.1, 0.2], [0.3, 0.5]], "pretrained here", [0.15, 0.4], PRETRAINING),
        ([[0.1, 0.2], [0.3, 0.5]], "none", [0.15, 0.4], TRIALS),  # a seed draws all models' labels
        ([[0.1, 0.2, 0.4]], "none", [0.1, 0.2, 0.4], TRIALS),
    ],
)
def test_mean_has_pretraining_seeds_or_the_trials_of_one_as_units(
    values, checkpoints, units, basis
) -> None:
    interval = mean(sample(values, checkpoints), confidence=0.95)
    expected: Any = stats.ttest_1samp(units, 0)
    assert (interval.value, interval.basis) == (pytest.approx(np.mean(units)), basis)
    ends = interval.low, interval.high
    assert ends == pytest.approx(tuple(expected.confidence_interval(0.95)))


@pytest.mark.parametrize("confidence", [0.9, 0.99])
@pytest.mark.parametrize(
    ("seeds", "first_seed", "test", "of_scipy"),
    [
        (5, 10, "Welch's t", partial(stats.ttest_ind, equal_var=False)),
        (4, 1, "paired t", stats.ttest_rel),
    ],
)
def test_difference_without_variation_of_rows_is_that_of_scipy(
    seeds: int, first_seed: int, test: str, of_scipy: Any, confidence: float
) -> None:
    rng = stream(1, "scipy")
    a, b = draw(rng, 4, 3), draw(rng, seeds, 3)
    interval = against(sample(a), sample(b, first_seed=first_seed), confidence=confidence)
    expected = of_scipy(a.mean(1), b.mean(1))
    assert (interval.test, interval.p_value) == (test, pytest.approx(expected.pvalue, rel=1e-6))
    assert (interval.low, interval.high) == pytest.approx(
        tuple(expected.confidence_interval(confidence))
    )
    again = interval.variance and interval.variance.half_width(1 - expected.pvalue)
    assert again == pytest.approx(abs(interval.value), rel=1e-6)  # it then ends at 0


def test_difference_by_rows_alone_is_the_paired_t_of_rows() -> None:
    """All seeds agree on both sides, so that only rows vary; or a side has a single trial, which
    depends on no seed."""
    one, other = (stream(1, "rows").random((2, 300)) < 0.7).astype(float)
    sides = [
        sample(np.full((1, 3), rows.mean()), "none", rows=np.tile(rows, (1, 3, 1)))
        for rows in (one, other)
    ]
    expected: Any = stats.ttest_rel(one, other)
    interval = against(*sides)
    assert interval.basis == ROWS and interval.p_value == pytest.approx(expected.pvalue, rel=1e-6)
    assert (interval.low, interval.high) == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert interval.excludes_zero == (expected.pvalue < 0.05)
    single = sample([[other.mean()]], "none", rows=other[None, None]).repeated()
    assert single.num_units == 2
    alone: Any = stats.ttest_1samp(other, 0)
    assert mean(single, confidence=0.95).p_value == pytest.approx(alone.pvalue, rel=1e-6)


def test_variance_is_that_of_a_crossed_analysis() -> None:
    """Computes the variance by mean squares: (seeds + rows - interaction) / number of scores."""
    rng, seeds, num = stream(1, "crossed"), 6, 40
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


def test_difference_of_one_pretraining_seed_is_about_these_checkpoints() -> None:
    rng = stream(1, "one")
    one, three = sample(draw(rng, 1, 5)), sample(draw(rng, 3, 5))
    scratch, published = sample(draw(rng, 1, 5), "none"), sample(draw(rng, 1, 5), "published")
    assert against(one, one).basis == AGREEING
    assert against(sample([[0.5]]), one).low is None  # a single trial
    for a, others, basis in (
        (one, (sample(draw(rng, 1, 5)), three, scratch), CHECKPOINTS),
        (three, (sample(draw(rng, 2, 5)), scratch), PRETRAINING),
        (published, (sample(draw(rng, 1, 5), "published"),), CHECKPOINTS),
        (scratch, (sample(draw(rng, 1, 5), "none"),), TRIALS),
    ):
        assert {against(a, b).basis for b in others} == {basis}
    assert mean(one, confidence=0.95).basis == CHECKPOINTS


def test_difference_of_checkpoints_varies_within_each_of_them() -> None:
    """One checkpoint less three: the variances of the means of five trials are added, those of the
    three divided by 3 squared, with the degrees of freedom of Satterthwaite."""
    rng = stream(1, "within")
    one, three = draw(rng, 1, 5), draw(rng, 3, 5)
    variance = against(sample(one), sample(three)).variance
    parts = np.array([*one.var(axis=1, ddof=1) / 5, *three.var(axis=1, ddof=1) / 5 / 9])
    assert variance is not None and variance.total == pytest.approx(parts.sum())
    assert variance.df == pytest.approx(parts.sum() ** 2 / (parts**2 / 4).sum())


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
    assert interval.value == pytest.approx((a - b).mean())
    assert interval.p_value == pytest.approx(2 * stats.t(4).sf(abs((a - b).mean() / spread)))
    assert interval.high == pytest.approx(interval.value + stats.t(4).ppf(0.975) * spread)
    assert interval.test == "corrected resampled t"


def test_difference_of_draws_adds_the_variance_of_pretraining_seeds() -> None:
    """A model with three checkpoints is compared, draw by draw, with one that has none."""
    rng = np.random.default_rng(3)
    draws = rng.normal(size=5)
    a = draws + 3 * rng.normal(size=(3, 1)) + 0.1 * rng.normal(size=(3, 5))
    b = draws + 0.1 * rng.normal(size=(1, 5))
    interval = against(resampled(a), replace(resampled(b), checkpoints="none"))
    residuals = a - a.mean(axis=0) - a.mean(axis=1, keepdims=True) + a.mean()
    of_draws = (a.mean(axis=0) - b[0]).var(ddof=1) * (1 / 5 + OVERLAP)
    alone = max(of_draws - (residuals**2).sum() / 8 / 15, 0)
    expected = a.mean(axis=1).var(ddof=1) / 3 + alone
    assert interval.variance is not None and interval.variance.total == pytest.approx(expected)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, None, 0.8]) == [1, None, 1] and holm([]) == []


# Moderation ----------------------------------------------------------------------------------

MODELS = ("a", "b", "c", "d", "e")
Samples = dict[CellKey, Sample]


def key(model: str, task: str = "one", method: str = "full") -> CellKey:
    return CellKey(model, task, method, "200")


TFIDF, CRF = (CellKey(name, "one", "classical", "200") for name in ("tfidf", "crf"))


def study(
    spread: Callable[[str], float] = lambda model: 0.02,
    *,
    models: tuple[str, ...] = MODELS,
    tasks: tuple[str, ...] = ("one", "two"),
    methods: tuple[str, ...] = ("full", "probe"),
    seeds: int = 3,
    labels: float = 0.0,
) -> Samples:
    """Returns scores around 0.5, with a spread by model; ``labels`` is the spread that all models
    share. Each trial has a pretraining seed of its own."""
    rng, samples = stream(1, "study"), {}
    for task in tasks:
        shared = rng.normal(0, 1, seeds) * labels
        for method, model in product(methods, models):
            values = 0.5 + shared + rng.normal(0, 1, seeds) * spread(model)
            samples[key(model, task, method)] = sample(values[:, None])
    return samples


def moderated(samples: Samples) -> Moderation:
    return Moderation(samples, baselines=("tfidf", "crf"), confidence=0.95)


def units(moderation: Moderation, a: CellKey, b: CellKey) -> tuple[float, float]:
    """Returns the between-seeds variance of a difference, and its prior's degrees of freedom."""
    variance = moderation.difference(a, b).variance
    assert variance is not None
    return variance.between.units, variance.between.prior_df


def test_difference_takes_at_most_three_degrees_of_freedom_from_other_cells() -> None:
    def prior_df(**of_study: Any) -> float:
        return units(moderated(study(**of_study)), key("a"), key("b"))[1]

    for seeds in (2, 3, 6):
        assert prior_df(seeds=seeds) == min(PRIOR_DF, PRIOR_DF_PER_OWN * (seeds - 1))
    assert prior_df(models=MODELS[:3]) == 2  # from the third model
    assert prior_df(tasks=("one",)) == PRIOR_DF / 2  # a factor comes from the same trials
    two = study(models=MODELS[:2])
    assert moderated(two).difference(key("a"), key("b")) == against(two[key("a")], two[key("b")])


def test_difference_by_hand() -> None:
    """Compares models that vary equally on one task with one method. Their factors are estimated
    and near 1, so that the prior is near twice the residual mean square of seeds and models."""
    samples = study(tasks=("one",), methods=("full",), labels=0.1, seeds=200)
    values = np.array([samples[key(model)].values for model in MODELS])
    residuals = values - values.mean(1, keepdims=True) - values.mean(0) + values.mean()
    mean_square = (residuals**2).sum() / (4 * 199)
    own = (values[0] - values[1]).var(ddof=1)
    variance, prior_df = units(moderated(samples), key("a"), key("b"))
    expected = (prior_df * 2 * mean_square + 199 * own) / (prior_df + 199) / 200
    assert variance == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("models", [MODELS, MODELS[:3]])
def test_difference_of_a_model_that_varies_widely_is_not_shrunk_to_that_of_others(models) -> None:
    """Nor are the others' widened to that of the one, even if it is one of only three."""
    spread, seeds = {"a": 0.2}, 400
    samples = study(lambda model: spread.get(model, 0.02), models=models, seeds=seeds, labels=0.1)
    moderation = moderated(samples)
    wild, _ = units(moderation, key("a"), key("b"))
    calm, calm_df = units(moderation, key("b"), key("c"))
    assert wild > 20 * calm
    own = (samples[key("b")].values - samples[key("c")].values).var(ddof=1)
    prior = ((calm_df + seeds - 1) * seeds * calm - (seeds - 1) * own) / calm_df
    assert prior == pytest.approx(2 * 0.02**2, rel=0.4)


def test_difference_of_methods_is_shrunk_towards_that_of_other_models() -> None:
    samples = study()
    a, b = key("a", method="full"), key("a", method="probe")
    # In all models but "a", both methods have equal scores in all seeds.
    same = {
        k: samples[k._replace(method="full")] if k.model != "a" and k.method == "probe" else s
        for k, s in samples.items()
    }
    variance, prior_df = units(moderated(same), a, b)
    alone = against(samples[a], samples[b]).variance
    assert alone is not None and prior_df == PRIOR_DF and variance < alone.between.units
    assert moderated(same).difference(key("c"), key("c", method="probe")).basis == AGREEING


def test_difference_is_the_same_whatever_was_asked_before() -> None:
    """Differences are kept by both of their cells, and tables by the baseline that they are to. A
    baseline does not change the differences between models."""
    without = study()
    baselines = {TFIDF: sample([[0.5], [0.52], [0.49]]), CRF: sample([[0.4], [0.55], [0.47]])}
    samples = without | baselines
    variance, prior_df = units(moderated(samples), key("a"), TFIDF)
    assert prior_df == PRIOR_DF and variance > 0
    pair = key("a"), key("b")
    assert moderated(samples).difference(*pair) == moderated(without).difference(*pair)
    cells = [key("a"), key("b"), key("a", method="probe"), TFIDF, CRF]
    moderation = moderated(samples)
    differences = {pair: moderation.difference(*pair) for pair in permutations(cells, 2)}
    for a, b in differences:
        assert (
            differences[a, b] == moderated(samples).difference(a, b) == moderation.difference(a, b)
        )
        assert differences[a, b].value == pytest.approx(-differences[b, a].value)
        assert differences[a, b].p_value == pytest.approx(differences[b, a].p_value)
    assert len({interval.value for interval in differences.values()}) == len(differences)
