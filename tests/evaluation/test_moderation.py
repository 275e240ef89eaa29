from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from stages.core.keys import CellKey
from stages.core.seeding import stream
from stages.evaluation.moderation import PRIOR_DF, PRIOR_DF_PER_OWN, Moderation, _Table
from stages.evaluation.statistics import AGREEING, difference
from stages.evaluation.variance import Sample

MODELS = ("a", "b", "c", "d", "e")


def key(model: str, task: str = "one", method: str = "full") -> CellKey:
    return CellKey(model, task, method, "200")


def sample(values: np.ndarray, *, num_rows: int = 20) -> Sample:
    """Returns one trial for each seed; scores do not vary with rows."""
    keys = tuple((seed, 1) for seed in range(1, len(values) + 1))
    rows = np.repeat(values[:, None], num_rows, axis=1)
    return Sample(keys, values, rows, "pretrained here")


def study(
    spread: Callable[[str], float] = lambda model: 0.02,
    *,
    models: tuple[str, ...] = MODELS,
    tasks: tuple[str, ...] = ("one", "two"),
    methods: tuple[str, ...] = ("full", "probe"),
    seeds: int = 3,
    labels: float = 0.0,
) -> dict[CellKey, Sample]:
    """Returns scores around 0.5, with a spread by model. ``labels`` is the spread that all models
    share."""
    rng, samples = stream(1, "study"), {}
    for task in tasks:
        shared = rng.normal(0, 1, seeds) * labels
        for method, model in product(methods, models):
            values = 0.5 + shared + rng.normal(0, 1, seeds) * spread(model)
            samples[key(model, task, method)] = sample(values)
    return samples


def moderated(samples: dict[CellKey, Sample], baselines: tuple[str, ...] = ()) -> Moderation:
    return Moderation(samples, baselines=baselines, confidence=0.95)


def units(moderation: Moderation, a: CellKey, b: CellKey) -> tuple[float, float]:
    """Returns the between-seeds variance of a difference, and its prior's degrees of freedom."""
    variance = moderation.difference(a, b).variance
    assert variance is not None
    return variance.between.units, variance.between.prior_df


def test_difference_takes_at_most_three_degrees_of_freedom_from_other_cells() -> None:
    for seeds in (2, 3, 6):
        samples = study(seeds=seeds)
        _, prior_df = units(moderated(samples), key("a"), key("b"))
        assert prior_df == min(PRIOR_DF, PRIOR_DF_PER_OWN * (seeds - 1))
    _, prior_df = units(moderated(study(models=MODELS[:3])), key("a"), key("b"))
    assert prior_df == 2  # from the third model
    _, prior_df = units(moderated(study(tasks=("one",))), key("a"), key("b"))
    assert prior_df == PRIOR_DF / 2  # a factor comes from the contrast's own trials
    with_two = study(models=MODELS[:2])
    alone = difference(with_two[key("a")], with_two[key("b")], confidence=0.95)
    assert moderated(with_two).difference(key("a"), key("b")) == alone


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


def test_difference_of_a_model_that_varies_widely_is_not_shrunk_to_that_of_others() -> None:
    samples = study(lambda model: 0.2 if model == "a" else 0.02, seeds=8)
    moderation = moderated(samples)
    wild, _ = units(moderation, key("a"), key("b"))
    calm, _ = units(moderation, key("c"), key("d"))
    assert wild > 20 * calm


def test_difference_of_methods_is_shrunk_towards_that_of_other_models() -> None:
    samples = study()
    a, b = key("a", method="full"), key("a", method="probe")
    # In all models but "a", both methods have equal scores in all seeds.
    same = {
        k: samples[k._replace(method="full")] if k.model != "a" and k.method == "probe" else s
        for k, s in samples.items()
    }
    variance, prior_df = units(moderated(same), a, b)
    alone = difference(samples[a], samples[b], confidence=0.95).variance
    assert alone is not None and prior_df == PRIOR_DF
    assert variance < alone.between.units
    assert moderated(same).difference(key("c"), key("c", method="probe")).basis == AGREEING


def test_difference_to_a_baseline_is_shrunk_towards_those_of_other_models() -> None:
    samples = study(methods=("full",))
    baseline = CellKey("tfidf", "one", "classical", "200")
    samples[baseline] = sample(np.array([0.5, 0.52, 0.49]))
    variance, prior_df = units(moderated(samples, ("tfidf",)), key("a"), baseline)
    assert prior_df == PRIOR_DF and variance > 0
    # A baseline does not change the differences between models.
    with_it, without = (
        units(moderated(each, ("tfidf",)), key("a"), key("b"))
        for each in (samples, {k: s for k, s in samples.items() if k.model != "tfidf"})
    )
    assert with_it == without


def test_a_spread_among_three_models_is_one_alone() -> None:
    """One of exactly three models varies ten times as much. Residuals share what varies, so that
    the variance of each model has to be taken out of those of the others."""
    rng = stream(1, "three")
    planted = np.array([0.2, 0.02, 0.02]) ** 2
    values = 0.5 + rng.normal(0, 1, (3, 4000)) * planted[:, None] ** 0.5
    table = _Table(("a", "b", "c"), values + rng.normal(0, 0.3, 4000))
    assert table.residual_variances == pytest.approx(planted, rel=0.1, abs=2e-4)
