"""Calibration, compared with a count by hand and with planted probabilities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, precision_recall_curve

from stages.core.seeding import stream
from stages.evaluation.calibration import (
    RareClass,
    at_temperature,
    calibration,
    fitted_temperature,
    lowest_confidence,
    rare_class,
)

LABELS = ["ham", "spam"]
ROWS = st.lists(st.tuples(st.booleans(), st.integers(0, 300)), min_size=1)


def error(right: list[bool], probabilities: list[float]) -> float:
    calibrated = calibration(["a"] * len(right), ["a" if r else "b" for r in right], probabilities)
    assert calibrated is not None
    return calibrated.calibration_error


@given(ROWS)
def test_calibration_error_is_that_of_bins_counted_one_by_one(rows: list[tuple[bool, int]]) -> None:
    """Probabilities are multiples of 1/300, so that each bin has twenty and all counts are
    exact."""
    expected = 0
    for m in range(15):
        inside = [(r, p) for r, p in rows if 20 * m < p <= 20 * (m + 1) or (m == 0 and p == 0)]
        expected += abs(sum(300 * r - p for r, p in inside))
    value = error([r for r, _ in rows], [p / 300 for _, p in rows])
    # Rounding may put a value at an edge into either bin, so edges are not drawn.
    if all(p % 20 for _, p in rows):
        assert value == pytest.approx(expected / 300 / len(rows), abs=1e-12)


@pytest.mark.parametrize("planted", [0.5, 2.0])
def test_fitted_temperature_is_the_planted_one(planted: float) -> None:
    """Answers are drawn from probabilities that are then made too sure or too unsure."""
    rng = stream(1, "temperature", str(planted))
    true = rng.dirichlet(np.full(4, 0.7), size=4000)
    gold = ["abcd"[rng.choice(4, p=row)] for row in true]
    scores = [at_temperature(dict(zip("abcd", row, strict=True)), 1 / planted) for row in true]
    temperature = fitted_temperature(scores, gold)
    assert temperature == pytest.approx(planted, rel=0.1)
    assert temperature is not None
    predicted = [max(row, key=lambda label: row[label]) for row in scores]
    before, after = (
        calibration(gold, predicted, [max(row.values()) for row in rows])
        for rows in (scores, [at_temperature(row, temperature) for row in scores])
    )
    assert before is not None and after is not None
    assert after.calibration_error < 0.03 < 0.1 < before.calibration_error
    assert before.accuracy == after.accuracy, "a temperature changes no prediction"


def test_fitted_temperature_is_none_where_it_is_not_determined() -> None:
    unsure = {"a": 0.6, "b": 0.4}
    assert fitted_temperature([unsure] * 40, ["a", "b"] * 20) is None, "too few rows"
    for likely in (0.6, 0.99, 0.9999):  # all are right, so lower is always better
        assert fitted_temperature([{"a": likely, "b": 1 - likely}] * 100, ["a"] * 100) is None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10)), min_size=1, max_size=80))
def test_lowest_confidence_answers_the_most_rows_at_the_accuracy(rows) -> None:
    """Compared with every threshold one by one; many probabilities are equal."""
    p, right = np.array([q / 10 for _, q in rows]), np.array([float(r) for r, _ in rows])
    good = [
        threshold
        for threshold in {*p.tolist()}
        if (p >= threshold).sum() >= 20 and right[p >= threshold].mean() >= 0.75
    ]
    assert lowest_confidence(p, right, 0.75) == (min(good) if good else None)


def test_calibration_error_by_hand() -> None:
    assert error([True, False], [1.0, 0.0]) == 0
    assert error([False, True], [1.0, 0.0]) == 1
    assert error([True, False] * 2, [0.9, 0.9, 0.1, 0.1]) == pytest.approx(0.4)  # no cancelling
    assert calibration(["a", "b"], ["a", "b"], [0.5, None]) is None


def of_scores(gold: list[str], scores: list[float]) -> RareClass | None:
    """The measures of predictions whose probability of spam is in ``scores``."""
    predicted = ["spam" if score > 0.5 else "ham" for score in scores]
    return rare_class(gold, predicted, [max(score, 1 - score) for score in scores], LABELS)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), min_size=2, max_size=60))
def test_rare_class_is_measured_as_by_scikit_learn(rows: list[tuple[bool, int]]) -> None:
    """Many scores are equal. Where spam is the more frequent label, ham is measured."""
    gold = ["spam" if is_spam else "ham" for is_spam, _ in rows]
    scores = [number / 20 for _, number in rows]
    measured = of_scores(gold, scores)
    if len({*gold}) < 2:
        assert measured is None
        return
    assert measured is not None
    rare = "spam" if gold.count("spam") < gold.count("ham") else "ham"
    of_rare = [score if rare == "spam" else round(1 - score, 6) for score in scores]
    is_rare = [label == rare for label in gold]
    precision, recall, _ = precision_recall_curve(is_rare, of_rare)
    assert measured.rare_class == rare
    assert measured.average_precision == pytest.approx(average_precision_score(is_rare, of_rare))
    assert measured.recall_at_precision == pytest.approx(recall[precision >= 0.9].max())
