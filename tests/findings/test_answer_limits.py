"""Limits of size and speed: the answer is the best within them, and says what is left out."""

import re
from dataclasses import replace

import pytest

from stages.core.params import AnswerLimits
from stages.core.study_file import typed
from stages.findings.answers import Standing
from stages.findings.results import Results
from stages.reporting.page import pages
from stages.reporting.words.answer import Answer, Card, answer_rows, answers
from tests.smoke import short_smoke_with

HEAVY = "encoder_mlm", 60_000_000  # the run with the best mean, and the bytes of its weights


def limited(results: Results, baselines_at: float = 0.2, **limits: float) -> Results:
    """The results under limits, with weak or strong baselines and one run with more weights."""
    trials = [replace(t, value=baselines_at) if not t.weights_bytes else t for t in results.trials]
    trials = [replace(t, weights_bytes=HEAVY[1]) if t.run == HEAVY[0] else t for t in trials]
    params = results.params.model_copy(update={"answer": AnswerLimits(**limits)})
    return replace(results, trials=trials, params=params)


def first_of(results: Results) -> Answer:
    return answers(results)[0]


def card_of(results: Results) -> Card:
    return first_of(results).cards[0]


def test_the_answer_is_the_best_within_the_limit_and_says_what_is_left_out(
    five_seeds: Results,
) -> None:
    without, results = limited(five_seeds), limited(five_seeds, max_weights_mb=50)
    for free, card in zip(first_of(without).cards, first_of(results).cards, strict=True):
        cells = [cell for cell in results.scores.cells if cell.task == card.task]
        light = [cell for cell in cells if cell.group != HEAVY[0]]
        assert card.best is max(light, key=lambda cell: cell.mean.value)
        if free.best.group == HEAVY[0]:
            assert card.otherwise.startswith(
                f"The limits leave out a better choice: `{HEAVY[0]}` with `{free.best.method}`, "
                f"{100 * free.best.mean.value:.1f}. It has 60 MB of weights, 10 MB over "
                "`answer.max_weights_mb: 50`. "
            )
            alternatives = card.otherwise.partition("50`. ")[2] + card.runs + card.cheapest
            assert f"`{HEAVY[0]}`" not in alternatives
        else:
            assert card.best.key == free.best.key and card.otherwise == free.otherwise
    assert {free.best.group for free in first_of(without).cards} >= {HEAVY[0]}
    assert (row := answer_rows(results)[0])["run"] != HEAVY[0] and "10 MB over" in row["otherwise"]
    assert "max_weights_mb: 50" in pages.markdown(results)


def test_a_limit_of_speed_is_compared_with_the_speed_that_the_card_shows(
    five_seeds: Results,
) -> None:
    """One run predicts 800 texts per second, with a latency of 4 ms, where speed was measured; the
    other runs are twice as fast."""
    costs = {
        key: cost
        if key.run == HEAVY[0] or not cost.texts_per_s
        else replace(cost, texts_per_s=2 * cost.texts_per_s, latency_s=0.002)
        for key, cost in five_seeds.finetuning_costs.items()
    }
    results = replace(five_seeds, finetuning_costs=costs)
    assert "800 texts per second" in card_of(limited(results)).takes
    for limits in ({"min_texts_per_s": 800}, {"max_latency_ms": 4}):
        assert card_of(limited(results, **limits)).best.group == HEAVY[0]
    card = card_of(limited(results, min_texts_per_s=900, max_latency_ms=3.5))
    assert card.best.group != HEAVY[0] and "1,600 texts per second" in card.takes
    assert (
        "It has a latency of 4 ms, 0.5 ms over `answer.max_latency_ms: 3.5` and 800 texts per "
        "second, 100 under `answer.min_texts_per_s: 900`."
    ) in card.otherwise


def test_a_baseline_is_the_answer_if_no_model_is_within_the_limit(five_seeds: Results) -> None:
    results = limited(five_seeds, max_weights_mb=1)
    answer = first_of(results)
    assert answer.verdict.startswith("On none of 3 tasks is a model within the limits and ahead of")
    assert answer.verdict.endswith("; on all 3 no model is within the limits.")
    for card in answer.cards:
        assert card.standing is Standing.BASELINES_ONLY and card.chip == card.standing.value
        assert card.best.group in results.scores.baselines
        assert card.cheapest.endswith("No model is within the limits.")
        assert "MB of weights" in card.otherwise
        assert re.search(r"Next best: `\w+`, a classical baseline, ", card.otherwise)
    strong = first_of(limited(five_seeds, 0.999, max_weights_mb=1))
    assert all(card.otherwise.count("limits") == 0 for card in strong.cards)


def test_a_limit_that_nothing_meets_is_ignored_and_the_card_says_so(five_seeds: Results) -> None:
    models = [trial for trial in five_seeds.trials if trial.run in five_seeds.params.runs]
    results = limited(replace(five_seeds, trials=models), max_weights_mb=0.001)
    without = limited(replace(five_seeds, trials=models))
    for free, card in zip(first_of(without).cards, first_of(results).cards, strict=True):
        warning, _, rest = card.otherwise.partition("`answer.max_weights_mb: 0.001`. ")
        assert warning.startswith(
            "No choice is within the limits, so this is the best without them."
        )
        assert (card.use, card.runs, card.cheapest) == (free.use, free.runs, free.cheapest)
        assert rest == free.otherwise


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_weights_mb": 0}, "answer.max_weights_mb: "),
        ({"max_latency_ms": "fast"}, "answer.max_latency_ms: "),
        ({"max_weight_mb": 5}, "answer.max_weight_mb: unknown 'max_weight_mb'; did you mean"),
    ],
)
def test_a_wrong_limit_is_refused_in_one_line(limits: dict, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^{re.escape(message)}[^\n]*\Z"):
        typed(short_smoke_with({"answer": limits}))
