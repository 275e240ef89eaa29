"""The metrics of multi-label classification."""

import json

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from stages.evaluation.metrics import score
from stages.evaluation.row_scores import row_scores
from stages.tasks._labels import written_labels

SETS = st.sets(st.sampled_from("abcd")).map(sorted)
SETS_OF_ROWS = st.lists(st.tuples(SETS, SETS), min_size=1)
MICRO, MACRO = "micro_f1", "macro_f1_of_labels"


@pytest.mark.slow
# Undefined scores are 0.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
@given(SETS_OF_ROWS)
def test_f1_is_that_of_scikit_learn(pairs: list[tuple[list[str], list[str]]]) -> None:
    gold, predicted = map(list, zip(*pairs, strict=True))
    texts = [*map(written_labels, gold)], [*map(written_labels, predicted)]
    present = sorted({label for row in gold for label in row})
    if not present:
        assert score(MICRO, *texts) == score(MACRO, *texts) == 0
        return
    x, y = (np.array([[i in row for i in "abcd"] for row in rows]) for rows in (gold, predicted))
    assert score(MICRO, *texts) == pytest.approx(f1_score(x, y, average="micro"))
    by_label = [f1_score(x[:, i], y[:, i]) for i in map("abcd".index, present)]
    assert score(MACRO, *texts) == pytest.approx(np.mean(by_label))


@pytest.mark.parametrize("metric", [MICRO, MACRO])
@given(SETS_OF_ROWS)
def test_row_scores_of_f1_are_the_jackknife_and_their_mean_the_metric(metric: str, pairs) -> None:
    gold, predicted = ([*map(written_labels, each)] for each in zip(*pairs, strict=True))
    n = len(gold)
    assume(n > 2 and all(any(json.loads(g) for g in gold[:i] + gold[i + 1 :]) for i in range(n)))
    scores = row_scores(metric, gold, predicted).astype(float)
    assert scores.mean() == pytest.approx(score(metric, gold, predicted), abs=1e-6)
    without = [
        score(metric, gold[:i] + gold[i + 1 :], predicted[:i] + predicted[i + 1 :])
        for i in range(n)
    ]
    jackknife = ((n - 1) ** 2 / n * np.var(without)) ** 0.5
    assert scores.std() / n**0.5 == pytest.approx(jackknife, abs=1e-5)
