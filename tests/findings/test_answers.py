"""What the report recommends, how sure that is, and the table of all scores."""

from dataclasses import replace

import pytest

from stages.core.params import AnswerLimits
from stages.evaluation.confusion import ConfusionRecord
from stages.findings.facts import Answer, LeadCertainty, Verdict
from stages.findings.results import Results
from tests.synthetic_study import RUNS, drawn, public, raw_params, with_baseline_at, with_trials

BEST = ("crf", "tfidf")


def of_task(results: Results, task: str) -> Answer:
    return next(answer for answer in results.answers if answer.task == task)


def test_the_model_is_chosen_on_validation_rows_and_not_on_test_rows(five_seeds: Results) -> None:
    """The decoder has the best validation scores, and the encoder the best test scores."""
    results = with_trials(
        five_seeds, lambda t: {"validation_score": 0.9 if t.model == "decoder_causal" else 0.3}
    )
    for answer in results.answers:
        assert answer.model is not None and answer.model.model == "decoder_causal"
        assert answer.best_on_test.model != "decoder_causal"
        assert answer.lead is not None and answer.baseline is not None
        difference = answer.model.score.value - answer.baseline.score.value
        assert answer.lead.estimate.value == pytest.approx(difference)


def test_the_baseline_is_chosen_on_validation_rows(five_seeds: Results) -> None:
    """An external system has no validation score and counts with its test score, so that a claim
    to be ahead of the baselines is one about it, too."""
    chosen = {"majority": 0.9, "tfidf": 0.1, "crf": 0.1}
    results = with_trials(
        five_seeds, lambda t: {"validation_score": chosen.get(t.model, t.validation_score)}
    )
    assert {a.baseline.model for a in results.answers if a.baseline} == {"majority"}
    unknown = with_trials(results, lambda t: {"validation_score": None} if t.model in BEST else {})
    assert {a.baseline.model for a in unknown.answers if a.baseline} == {"majority"}
    above = with_trials(unknown, lambda t: {"value": 0.95} if t.model in BEST else {})
    assert {a.baseline.model for a in above.answers if a.baseline} == {*BEST}


@pytest.mark.parametrize(
    ("baseline", "certainty"),
    [(0.2, LeadCertainty.LEADS), (0.565, LeadCertainty.OPEN), (0.9, LeadCertainty.BASELINE)],
)
def test_certainty_follows_from_the_lead_on_test_rows(
    five_seeds: Results, baseline: float, certainty: LeadCertainty
) -> None:
    answer = of_task(with_baseline_at(five_seeds, baseline), "tag")
    assert answer.lead is not None and answer.lead.certainty is certainty
    is_model = certainty is not LeadCertainty.BASELINE
    assert answer.recommended == (answer.model if is_model else answer.baseline)
    assert (answer.lead.verdict is Verdict.SIGNIFICANT) == (certainty is not LeadCertainty.OPEN)
    assert answer.lead.p is not None and answer.lead.p_holm is not None
    assert answer.lead.p_holm >= answer.lead.p


def test_other_choices_are_the_next_the_cheapest_and_the_smaller(five_seeds: Results) -> None:
    below, cheap = with_baseline_at(five_seeds, 0.2), {"finetune_flops": 10, "num_params": 1000}
    results = with_trials(below, lambda t: cheap if t.model == "encoder_scientific" else {})
    answer = of_task(results, "section")
    others = answer.next_best, answer.cheapest_as_good, answer.smaller
    assert answer.recommended.model == "encoder_mlm"
    assert [choice and choice.model for choice in others] == ["encoder_scientific"] * 3
    assert of_task(below, "section").smaller is None


def test_of_equal_scores_the_cheaper_method_is_the_best() -> None:
    study = drawn(raw_params({"encoder_mlm": RUNS["encoder_mlm"]}), score=0.8)
    assert {answer.best_on_test.method for answer in study.answers} == {"linear_probe"}


def limited(results: Results, **limits: float) -> Results:
    params = results.params.model_copy(update={"answer": AnswerLimits(**limits)})
    return replace(results, params=params)


def test_the_answer_is_the_best_within_the_limits(five_seeds: Results) -> None:
    """Baselines are within all limits."""
    results = with_baseline_at(five_seeds, 0.2)
    too_fast = of_task(limited(five_seeds, min_texts_per_s=1e9), "tag")
    assert too_fast.model is None and too_fast.recommended.is_baseline and too_fast.lead is None
    small = with_trials(
        results, lambda t: {"weights_bytes": 10**6} if t.model == "encoder_scratch" else {}
    )
    answer = of_task(limited(small, max_weights_mb=2), "tag")
    assert answer.recommended.model == "encoder_scratch"
    assert answer.best_on_test.model != "encoder_scratch"
    assert answer.violations == ("max_weights_mb",)


def test_confused_are_the_commonest_errors(five_seeds: Results) -> None:
    results = with_baseline_at(five_seeds, 0.2)
    answer = of_task(results, "type")
    at = {
        "model": answer.recommended.model,
        "method": answer.recommended.method,
        "label_budget": "200",
        "num_trials": 15,
    }
    numbers = {("a", "a"): 60, ("a", "b"): 20, ("b", "c"): 30, ("b", "b"): 10, ("c", "a"): 5}
    records = [
        ConfusionRecord(**at, answer=right, prediction=given, number=number)
        for (right, given), number in numbers.items()
    ]
    confused = of_task(replace(results, confusion={**results.confusion, "type": records}), "type")
    assert [(c.answer, c.prediction, c.share) for c in confused.confused] == [
        ("b", "c", 0.75),
        ("a", "b", 0.25),
        ("c", "a", 1.0),
    ]


def test_score_table_is_sorted_and_marks_what_is_as_good(five_seeds: Results) -> None:
    table = five_seeds.scores_table
    means = [row.mean for row in table.rows if row.mean is not None]
    assert means == sorted(means, reverse=True)
    best_of = {answer.task: answer.recommended for answer in five_seeds.answers}
    for row in table.rows:
        for task in row.recommended_for:
            assert (row.model, row.method) == (best_of[task].model, best_of[task].method)
    for task in table.tasks:
        scores = [row.scores[task] for row in table.rows if task in row.scores]
        best = max(scores, key=lambda score: score.estimate.value)
        worst = min(scores, key=lambda score: score.estimate.value)
        assert best.as_good and best.lowest_rank in (1, None) and not worst.as_good


def test_model_costs_are_means_over_seeds_and_unknown_for_published_ones(
    five_seeds: Results,
) -> None:
    cost = five_seeds.model_costs[0]
    assert (cost.model, cost.pretrain_s, cost.finetune_s) == ("encoder_mlm", 61.5, 2.5)
    assert cost.pretrain_flops == 6 * 2_563_072 * 4_096_000
    (published,) = drawn(raw_params({"bert": public("google-bert/bert")})).model_costs
    assert published.pretrain_flops is None is published.pretrain_s
    assert published.finetune_flops is not None
