"""What the report recommends, how sure that is, and the tables of scores, costs, estimates and
endings."""

from dataclasses import replace

import numpy as np
import pytest

from stages.core.params import AnswerLimits
from stages.evaluation.confusion import ConfusionRecord
from stages.findings.facts import Answer, LeadCertainty, Verdict
from stages.findings.models import Progress, TriedStep, endings, slope_at_end
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
    unknown = with_trials(results, lambda t: {"validation_score": None} if t.model in BEST else {})
    above = with_trials(unknown, lambda t: {"value": 0.95} if t.model in BEST else {})
    for study, expected in ((results, {"majority"}), (unknown, {"majority"}), (above, {*BEST})):
        assert {a.baseline.model for a in study.answers if a.baseline} == expected


@pytest.mark.parametrize(
    ("baseline", "certainty"),
    [(0.2, LeadCertainty.LEADS), (0.565, LeadCertainty.OPEN), (0.9, LeadCertainty.BASELINE)],
)
def test_certainty_follows_from_the_lead_on_test_rows(five_seeds, baseline, certainty) -> None:
    answer = of_task(with_baseline_at(five_seeds, baseline), "tag")
    assert answer.lead is not None and answer.lead.certainty is certainty
    is_model = certainty is not LeadCertainty.BASELINE
    assert answer.recommended == (answer.model if is_model else answer.baseline)
    assert (answer.lead.verdict is Verdict.SIGNIFICANT) == (certainty is not LeadCertainty.OPEN)
    assert answer.lead.p is not None and answer.lead.p_holm is not None
    assert answer.lead.p_holm >= answer.lead.p


def test_other_choices_are_the_next_the_cheapest_and_the_smaller(five_seeds: Results) -> None:
    """The cheaper of two methods with equal scores is the best."""
    below, cheap = with_baseline_at(five_seeds, 0.2), {"finetune_flops": 10, "num_params": 1000}
    results = with_trials(below, lambda t: cheap if t.model == "encoder_scientific" else {})
    answer = of_task(results, "section")
    others = answer.next_best, answer.cheapest_as_good, answer.smaller
    assert answer.recommended.model == "encoder_mlm"
    assert [choice and choice.model for choice in others] == ["encoder_scientific"] * 3
    assert of_task(below, "section").smaller is None
    equal = drawn(raw_params({"encoder_mlm": RUNS["encoder_mlm"]}), score=0.8)
    assert {answer.best_on_test.method for answer in equal.answers} == {"linear_probe"}


def test_the_answer_is_the_best_within_the_limits(five_seeds: Results) -> None:
    """Baselines are within all limits."""

    def limited(results: Results, **limits: float) -> Answer:
        params = results.params.model_copy(update={"answer": AnswerLimits(**limits)})
        return of_task(replace(results, params=params), "tag")

    too_fast = limited(five_seeds, min_texts_per_s=1e9)
    assert too_fast.model is None and too_fast.recommended.is_baseline and too_fast.lead is None
    results = with_baseline_at(five_seeds, 0.2)
    assert limited(results, min_texts_per_s=800.0, max_latency_ms=4.0).violations == ()
    small = with_trials(
        results, lambda t: {"weights_bytes": 10**6} if t.model == "encoder_scratch" else {}
    )
    answer = limited(small, max_weights_mb=1)
    assert answer.recommended.model == "encoder_scratch"
    assert answer.best_on_test.model != "encoder_scratch"
    assert answer.violations == ("max_weights_mb",)


def test_calibration_and_confusions_are_those_of_the_recommended_choice(five_seeds) -> None:
    results = with_baseline_at(five_seeds, 0.2)
    answer = of_task(results, "type")
    numbers = {("a", "a"): 60, ("a", "b"): 20, ("b", "c"): 30, ("b", "b"): 10, ("c", "a"): 5}
    records = [
        ConfusionRecord(
            model=model,
            method=answer.recommended.method,
            label_budget="200",
            num_trials=15,
            answer=right,
            prediction=given,
            number=number,
        )
        for model in (answer.recommended.model, "encoder_scratch")
        for (right, given), number in numbers.items()
    ]
    confused = of_task(replace(results, confusion={**results.confusion, "type": records}), "type")
    assert [(c.answer, c.prediction, c.share) for c in confused.confused] == [
        ("b", "c", 0.75),
        ("a", "b", 0.25),
        ("c", "a", 1.0),
    ]
    calibration = answer.calibration
    assert calibration and calibration.answered == {0.95: 0.4, 0.99: 0.0}
    assert calibration.calibrated_error == pytest.approx(0.04)
    assert calibration.mean_probability == pytest.approx(calibration.accuracy + 0.1)


# Tables --------------------------------------------------------------------------------------


def test_score_table_is_sorted_and_has_ranks_and_what_is_as_good(five_seeds: Results) -> None:
    table = five_seeds.scores_table
    means = [row.mean for row in table.rows if row.mean is not None]
    assert means == sorted(means, reverse=True)
    best_of = {answer.task: answer.recommended for answer in five_seeds.answers}
    for row in table.rows:
        for task in row.recommended_for:
            assert (row.model, row.method) == (best_of[task].model, best_of[task].method)
    for task in table.tasks:
        of_task = [row for row in table.rows if task in row.scores]
        of_task.sort(key=lambda row: -row.scores[task].estimate.value)
        if task != "tag":  # where a baseline and two encoders are within two points
            alike = [row.model for row in of_task if row.scores[task].as_good]
            assert alike == ["tfidf", "encoder_mlm", "encoder_scientific"]
            assert {
                (s.lowest_rank, s.highest_rank) for s in [r.scores[task] for r in of_task[:3]]
            } == {(1, 3)}
        ranked = [row.scores[task] for row in of_task if row.method in ("full", "classical")]
        for rank, score in enumerate(ranked, 1):
            assert score.lowest_rank is not None and score.highest_rank is not None
            assert score.lowest_rank <= rank <= score.highest_rank
        assert ranked[-1].lowest_rank == len(ranked)  # the majority


def test_model_costs_are_means_over_seeds_and_unknown_for_published_ones(five_seeds) -> None:
    cost = five_seeds.model_costs[0]
    assert (cost.model, cost.pretrain_s, cost.finetune_s) == ("encoder_mlm", 61.5, 2.5)
    assert cost.pretrain_flops == 6 * 2_563_072 * 4_096_000
    (published,) = drawn(raw_params({"bert": public("google-bert/bert")})).model_costs
    assert published.pretrain_flops is None is published.pretrain_s
    assert published.finetune_flops is not None


def test_agreements_are_the_planted_ones(results: Results) -> None:
    """H-scores rank models by their effects and LogME in the reverse order; H-scores are undefined
    on one task, and of three models no correlation is given."""
    agreements = {(a.task, a.estimate): a for a in results.agreements}
    assert ("section", "h_score") not in agreements and len(agreements) == 5
    for (_, name), agreement in agreements.items():
        assert agreement.tau is not None
        assert agreement.tau > 0.5 if name == "h_score" else agreement.tau < -0.5
    few = [r for r in results.estimates["tag"] if r.model.startswith("encoder_s")]
    agreement = replace(results, estimates={**results.estimates, "tag": few}).agreements[0]
    assert len(agreement.values) == 3 and agreement.tau is None


def test_endings_have_the_slope_of_the_last_half_of_a_loss(results: Results) -> None:
    """The slope is right for any number of validations; under noise it equals numpy's fit."""
    for num in (2, 3, 8, 20):
        steps = [-(-160 * k // num) for k in range(1, num + 1)]
        assert slope_at_end({s: 9 - 0.31 * np.log2(s) for s in steps}) == pytest.approx(-0.31)
    noisy = {s: 9 + np.random.default_rng(s).normal(0, 0.05) for s in range(10, 161, 10)}
    half = [s for s in noisy if s >= 80]
    expected = np.polyfit(np.log2(half), [noisy[s] for s in half], 1)[0]
    assert slope_at_end(noisy) == pytest.approx(expected)
    assert slope_at_end({20: 9.0, 160: 3.0}) is None
    ends = results.endings
    assert len(ends) == 5 and not any(end.falls or end.at_edge for end in ends)
    ((key, progress), *_) = results.progress.items()
    steep = [replace(s, validation_loss=10 - s.step / 200) for s in progress.history]
    tries = [TriedStep(**vars(steep[-1]), rate=rate, kept=rate == 0.01) for rate in (0.001, 0.01)]
    falling = replace(results, progress={key: Progress(steep, tries)})
    assert [(end.falls, end.at_edge, end.kept) for end in endings(falling)] == [(True, True, 0.01)]
