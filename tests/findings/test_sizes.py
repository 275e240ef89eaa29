import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stages.core.params import Params
from stages.core.seeding import stream
from stages.findings.results import Results
from stages.findings.sizes import PowerLaw, cells_with_sizes, fit, num_sizes, power_laws
from tests.synthetic_study import RUNS, raw_params, run

SIZES = [300_000, 1_000_000, 3_000_000, 10_000_000]
A, B = 2.5, 0.12


def drawn(trial: int, noise: float, num_seeds: int = 5) -> list[list[float]]:
    """Errors of the law of ``A`` and ``B``: for each size, one per seed."""
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
    """Coverage is 0.9 within four standard errors of 400 studies."""
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


def laws_of(results: Results) -> list[PowerLaw]:
    cells = cells_with_sizes(results.scores, "type", "200")
    return [law for _, law, _ in power_laws(cells, results.scores.group_of)]


def test_sizes_that_differ_in_something_else_have_no_law(three_sizes: Results) -> None:
    def number(**settings: Any) -> int:
        raw = raw_params(RUNS | {"tiny": run("encoder", "mlm", d_model=48) | settings})
        return len(laws_of(replace(three_sizes, params=Params(**raw))))

    assert number() == 1
    assert number(corpus="scientific") == number(objective={"name": "mlm", "mask_prob": 0.5}) == 0


@pytest.mark.parametrize(("num_runs", "num_seeds"), [(3, 2), (2, 5)])
def test_a_law_rests_on_pretraining_seeds_where_all_sizes_have_several(
    three_sizes: Results, num_runs: int, num_seeds: int
) -> None:
    """If not, the five fine-tuning seeds are used."""
    trials = list(three_sizes.trials)
    runs = raw_params(RUNS | {"tiny": run("encoder", "mlm", d_model=48)})["runs"]
    for name in ("encoder_mlm", "encoder_small", "tiny")[:num_runs]:
        runs[name]["seeds"] = [1, 2]
        trials += [
            replace(t, pretrain_seed=2, value=t.value - 0.01)
            for t in three_sizes.trials
            if t.run == name
        ]
    params = Params(**(raw_params() | {"runs": runs}))
    any_rows = next(iter(three_sizes.row_scores.values()))
    row_scores = {trial.key: any_rows for trial in trials}
    more = replace(three_sizes, params=params, trials=trials, row_scores=row_scores)
    (law,) = laws_of(more)
    assert len(law.exponents) == num_seeds
