"""Regression: the scale of the target, and how a model sees a row."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from stages.core.seeding import stream
from stages.evaluation.metrics import score
from stages.evaluation.row_scores import row_scores
from stages.tasks._cells import written_number
from stages.tasks._task import TASKS
from stages.tasks.regression import Regression
from tests.small import small_model, small_tokenizer, with_head

ROWS = [
    {"id": str(i), "text": text, "text_pair": pair, "target": target}
    for i, (text, pair, target) in enumerate(
        [
            ("the class", "the class", 5000.0),
            ("the function", "a method call", 1000.0),
            ("a call of the function", "a call of the function", 4800.0),
            ("classes have methods", "the statement ends", 1300.0),
        ]
    )
]


def task() -> Regression:
    of = Regression([], small_tokenizer(), 16)
    of.take_facts(TASKS["regression"].facts(ROWS))
    return of


def test_regression_learns_standardised_targets_and_predicts_targets() -> None:
    of = task()
    batch = of.collate(of.encode(ROWS), rngs=[])
    targets = np.array([row["target"] for row in ROWS])
    assert batch.labels is not None
    expected = (targets - targets.mean()) / targets.std()
    np.testing.assert_allclose(batch.labels.numpy(), expected, rtol=1e-6)
    model = with_head(of, small_model("encoder"))
    with torch.no_grad():
        model.head.linear.weight.zero_()
        predictions = of.predict(model, batch, of.encode(ROWS))
    assert {float(value) for value in predictions} == {targets.mean()}
    loss = of.loss(model, batch)["regression"][1]
    assert loss.item() == pytest.approx(len(ROWS))  # predicting the mean costs 1 for each row


def test_outputs_are_float32_at_any_precision() -> None:
    """Numbers of three digits would tie in bfloat16."""
    of = task()
    model, examples = with_head(of, small_model("encoder")), of.encode(ROWS)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert of.numbers(model, of.collate(examples, rngs=[])).dtype == torch.float32


# Rows -------------------------------------------------------------------------------------------

KIND = TASKS["regression"]
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


def test_correlations_of_a_constant_are_0() -> None:
    gold = ["1.0", "2.0", "3.5"]
    for metric in ("pearson", "spearman"):
        for constant in ("0", "0.1", "2.166667", "1e20"):
            assert score(metric, gold, [constant] * 3) == 0
            assert score(metric, [constant] * 3, gold) == 0
    assert {*row_scores("pearson", gold, ["0.1"] * 3)} == {0.0}


def correlated(num: int) -> tuple[list[str], list[str]]:
    rng = stream(1, "correlated")
    x = rng.normal(3.0, 1.0, num)
    return [*map(repr, x.tolist())], [
        written_number(v) for v in (x + rng.normal(0, 1, num)).tolist()
    ]


@pytest.mark.parametrize("metric", ["pearson", "spearman"])
def test_row_scores_of_correlations_have_the_standard_error_of_a_bootstrap(metric: str) -> None:
    gold, predicted = correlated(300)
    scores = row_scores(metric, gold, predicted).astype(float)
    assert scores.mean() == pytest.approx(score(metric, gold, predicted), abs=1e-6)
    rng, values = stream(1, "bootstrap", metric), []
    for _ in range(300):
        rows = rng.integers(len(gold), size=len(gold))
        values.append(score(metric, [gold[i] for i in rows], [predicted[i] for i in rows]))
    error = scores.std(ddof=1) / len(scores) ** 0.5
    assert error == pytest.approx(np.std(values), rel=0.25)


def test_facts_are_the_mean_and_the_standard_deviation() -> None:
    rows = [{"target": value} for value in (1.0, 2.0, 6.0)]
    facts = KIND.facts(rows)
    assert facts["target_mean"] == 3.0
    assert facts["target_std"] == pytest.approx(np.std([1, 2, 6]))
    with pytest.raises(ValueError, match="target"):
        KIND.facts(rows[:1] * 3)
