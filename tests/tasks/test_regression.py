"""The metrics and the facts of regression."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from stages.core.seeding import stream
from stages.evaluation.metrics import score
from stages.evaluation.row_scores import row_scores
from stages.tasks._task import TASKS

FEW = st.integers(-3, 3).map(str)  # with many ties
ANY = st.floats(-1e6, 1e6, allow_subnormal=False).map(repr)
PAIRS = st.lists(st.tuples(FEW, FEW), min_size=2) | st.lists(st.tuples(ANY, ANY), min_size=2)


@given(PAIRS)
def test_correlations_are_those_of_scipy(pairs: list[tuple[str, str]]) -> None:
    gold, predicted = map(list, zip(*pairs, strict=True))
    x, y = (np.array([*map(float, each)]) for each in (gold, predicted))
    x, y = (each / (abs(each).max() or 1) for each in (x, y))  # squares of 1e-300 are no floats
    spread = min(each.std() for each in (x, y))
    assume(spread == 0 or spread > 1e-6)  # otherwise rounding decides, in both implementations
    if spread == 0:
        assert score("pearson", gold, predicted) == score("spearman", gold, predicted) == 0
        return
    assert score("pearson", gold, predicted) == pytest.approx(stats.pearsonr(x, y)[0], abs=1e-7)
    assert score("spearman", gold, predicted) == pytest.approx(stats.spearmanr(x, y)[0], abs=1e-9)


@pytest.mark.parametrize("metric", ["pearson", "spearman"])
def test_row_scores_of_correlations_have_the_standard_error_of_a_bootstrap(metric: str) -> None:
    rng = stream(1, "correlated")
    x = rng.normal(3.0, 1.0, 300)
    gold, predicted = ([*map(repr, y.tolist())] for y in (x, x + rng.normal(0, 1, 300)))
    scores = row_scores(metric, gold, predicted).astype(float)
    assert scores.mean() == pytest.approx(score(metric, gold, predicted), abs=1e-6)
    draws = rng.integers(300, size=(300, 300))
    values = [score(metric, *([side[i] for i in d] for side in (gold, predicted))) for d in draws]
    error = scores.std(ddof=1) / len(scores) ** 0.5
    assert error == pytest.approx(np.std(values), rel=0.3)


def test_facts_are_the_mean_and_the_standard_deviation() -> None:
    rows = [{"target": value} for value in (1.0, 3.0)]
    facts = TASKS["regression"].facts(rows)
    assert facts == {"target_mean": 2.0, "target_std": 1.0}
    with pytest.raises(ValueError, match="target"):
        TASKS["regression"].facts(rows[:1] * 3)
