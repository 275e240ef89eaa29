"""A threshold is the best on the rows that it is chosen on."""

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stages.core.seeding import stream
from stages.evaluation.metrics import score
from stages.tasks._task import Predicted
from stages.trials.validation import best_threshold

METRICS = ("squad_f1", "exact_match")
NOTHING = json.dumps([])


def mean(metric: str, gold: list[str], predicted: list[Predicted], threshold: float) -> float:
    return score(metric, gold, [each.at(threshold) for each in predicted])


def right(text: str) -> str:
    return json.dumps([text])


def test_best_threshold_is_below_0_for_margins_that_are_too_low() -> None:
    """All margins are below 0. Answers are right from -1 upwards and wrong from -3 downwards."""
    gold = [right("sea"), right("oak tree"), NOTHING, NOTHING]
    predicted = [
        Predicted("sea", margin=-1.0),
        Predicted("oak", margin=-0.5),
        Predicted("elm", margin=-3.0),
        Predicted("ash", margin=-9.0),
    ]
    assert mean("squad_f1", gold, predicted, 0.0) == 0.5
    for metric in METRICS:
        assert best_threshold(metric, gold, predicted) == -2.0
    assert mean("squad_f1", gold, predicted, -2.0) == pytest.approx((1 + 2 / 3 + 2) / 4)
    assert mean("exact_match", gold, predicted, -2.0) == 0.75


def test_best_threshold_is_the_nearest_to_0_of_equally_good_ones() -> None:
    gold = [right("sea"), NOTHING]
    apart = [Predicted("sea", margin=2.0), Predicted("elm", margin=-4.0)]
    assert best_threshold("squad_f1", gold, apart) == 0.0
    bold = [Predicted("sea", margin=9.0), Predicted("elm", margin=5.0)]
    assert best_threshold("squad_f1", gold, bold) == 7.0


def test_best_threshold_is_infinite_if_one_answer_for_all_is_best() -> None:
    wrong = [Predicted("elm", margin=margin) for margin in (3.0, 5.0)]
    never = best_threshold("squad_f1", [NOTHING, NOTHING], wrong)
    assert never == math.inf and [each.at(never) for each in wrong] == ["", ""]
    shy = [Predicted("elm", margin=margin) for margin in (-3.0, -math.inf)]
    always = best_threshold("squad_f1", [right("elm"), right("elm")], shy)
    assert always == -math.inf and [each.at(always) for each in shy] == ["elm", "elm"]


def test_best_threshold_is_0_if_every_question_has_an_answer() -> None:
    """This holds without margins, and if all margins are above 0."""
    gold = [right("sea"), right("oak")]
    assert best_threshold("squad_f1", gold, [Predicted("sea"), Predicted("elm")]) == 0.0
    assert Predicted("sea").at(math.inf) == "sea"
    positive = [Predicted("sea", margin=1.0), Predicted("elm", margin=2.0)]
    assert best_threshold("squad_f1", gold, positive) == 0.0


@pytest.mark.parametrize("metric", ["macro_f1", "accuracy", "matthews", "f1_of_rare"])
def test_best_threshold_of_two_labels_is_the_best_of_all(metric: str) -> None:
    """Rows of a rare label have margins that are higher by 2, but mostly below 0."""
    rng = stream(1, "margins")
    for number in (20, 150, 400):
        gold = ["rare" if draw < 0.1 else "usual" for draw in rng.random(number)]
        margins = rng.normal(size=number) + [-1.5 if label == "rare" else -3.5 for label in gold]
        predicted = [Predicted("rare", margin=m, otherwise="usual") for m in margins.tolist()]
        chosen = mean(metric, gold, predicted, best_threshold(metric, gold, predicted))
        best = max(mean(metric, gold, predicted, t) for t in [0.0, *margins, math.inf])
        # Only half of the 400 margins are compared.
        assert best - (0.02 if number == 400 else 1e-9) <= chosen <= best + 1e-9
        assert chosen >= mean(metric, gold, predicted, 0.0)


@pytest.mark.slow
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from([right("sea"), right("oak tree"), NOTHING]),
            st.sampled_from(["sea", "oak", "elm", ""]),
            st.integers(-4, 4).map(float) | st.just(-math.inf),
        ),
        min_size=1,
        max_size=9,
    ),
    metric=st.sampled_from(METRICS),
)
@example([(NOTHING, "sea", -math.inf), (right("sea"), "sea", -1.0)], "squad_f1")
def test_best_threshold_is_at_least_as_good_as_all_others(rows, metric) -> None:
    gold = [answer for answer, _, _ in rows]
    predicted = [Predicted(text, margin=margin) for _, text, margin in rows]
    chosen = mean(metric, gold, predicted, best_threshold(metric, gold, predicted))
    others = [-math.inf, *(i / 2 for i in range(-10, 11)), math.inf]
    assert chosen == pytest.approx(max(mean(metric, gold, predicted, t) for t in others))
