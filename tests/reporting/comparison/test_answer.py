"""The first screen says what the numbers say, and recommends no loser."""

from dataclasses import replace

import numpy as np
import pytest

from stages.evaluation.metrics import POINTS, scale_of
from stages.reporting.comparison.answer import (
    ANY,
    BASELINE,
    CLASSICAL,
    LEADS,
    OPEN,
    UNTESTED,
    answers,
    references,
)
from stages.reporting.comparison.best_runs import best_runs
from stages.reporting.comparison.results import Results
from stages.reporting.comparison.verdicts import NOT_SIGNIFICANT, ONE_SEED, SIGNIFICANT
from stages.reporting.comparison.what_mattered import what_mattered
from tests.synthetic_study import METRICS


def with_baseline_at(results: Results, value: float) -> Results:
    """The strongest baseline of each task has this score in all trials."""
    trials = [
        replace(t, value=value) if t.run in ("window", "tfidf") else t for t in results.trials
    ]
    return replace(results, trials=trials)


def test_every_choice_has_an_answer_for_every_task(five_seeds: Results) -> None:
    found = answers(five_seeds)
    assert [(a.label_budget, a.method) for a in found] == [
        ("200", ANY),
        ("200", "full"),
        ("200", "linear_probe"),
    ]
    for answer in found:
        assert [card.task for card in answer.cards] == list(METRICS)
        for card in answer.cards:
            assert [*card.against] == references(five_seeds)
            assert answer.method in (ANY, card.best.method) or card.sure == BASELINE


@pytest.mark.parametrize("value", [0.2, 0.999])
def test_what_is_recommended_has_the_best_mean_of_all(five_seeds: Results, value: float) -> None:
    results = with_baseline_at(five_seeds, value)
    for card in answers(results)[0].cards:
        means = {(c.group, c.method): c.mean.value for c in results.cells if c.task == card.task}
        best = max(means, key=lambda key: means[key])
        assert (card.best.group, card.best.method) == best
        assert f"`{best[0]}`" in card.use and POINTS.shown(means[best]) in card.use
        assert (
            (card.sure == BASELINE)
            == (value > 0.9)
            == ("The best model, " in card.against[CLASSICAL])
        )


def test_a_lead_is_clear_only_if_the_difference_is_significant(five_seeds: Results) -> None:
    for results in (five_seeds, with_baseline_at(five_seeds, 0.2)):
        for card, found in zip(answers(results)[0].cards, best_runs(results).values(), strict=True):
            assert (card.sure == LEADS) == (found.verdict == SIGNIFICANT)
            assert found.verdict in card.against[CLASSICAL]
            assert (found.verdict == NOT_SIGNIFICANT) <= (card.sure in (OPEN, BASELINE))


def test_one_pretraining_seed_claims_nothing(results: Results) -> None:
    for card in answers(with_baseline_at(results, 0.2))[0].cards:
        assert card.sure == UNTESTED
        assert ONE_SEED in card.against[CLASSICAL]
        said = "ahead of none", "No model differs", "is not ahead of"
        assert any(words in card.runs for words in said)
    for value in (0.2, 0.999):
        said = answers(with_baseline_at(results, value))[0].verdict
        assert said.startswith("On none of") and "nothing was tested" in said
        assert "may be chance" not in said and "the baseline is ahead" not in said


def test_beside_a_run_stands_the_verdict_of_the_contrast_or_none(five_seeds: Results) -> None:
    for answer in answers(five_seeds):
        for card in answer.cards:
            run = best_runs(five_seeds, None if answer.method == ANY else answer.method)
            best = run[card.task, card.label_budget].run
            for name, sentence in card.against.items():
                between = [
                    c
                    for c in five_seeds.contrasts
                    if name in {c.a.group, c.b.group} - {best.group} and best in (c.a, c.b)
                ]
                if between:
                    (contrast,) = between
                    assert contrast.verdict_with_seeds in sentence
                elif name not in (CLASSICAL, best.group):
                    assert "no contrast" in sentence


def test_what_mattered_tells_the_effects_averaged_over_tasks(five_seeds: Results) -> None:
    """The mean with its interval and verdict, of the comparisons with the smallest p-values."""
    for answer in answers(five_seeds):
        mattered = {each.axis: each.sentence for each in answer.mattered[CLASSICAL]}
        asked = [
            question
            for question in five_seeds.questions
            if question.axis == "pretrained" and answer.method in (ANY, question.first.method)
        ]
        first = min(asked, key=lambda question: question.p_holm or 0.0)
        assert first.significant and first.num_tasks == len(METRICS)
        mean = scale_of(first.metric).signed(first.effect.value)
        told = mattered["pretrained"]
        assert f": {mean} points on average over {len(METRICS)} tasks (" in told
        assert f"), {first.verdict}; largest on `" in told


def test_beside_a_run_only_its_contrasts_count(five_seeds: Results) -> None:
    (answer, *_) = answers(five_seeds)
    sentences = {each.axis: each.sentence for each in answer.mattered["encoder_scientific"]}
    assert "training set" in sentences and "architecture" not in sentences


def test_a_study_without_baselines_says_so(five_seeds: Results) -> None:
    runs = [t for t in five_seeds.trials if t.run in five_seeds.params.pretrain]
    for card in answers(replace(five_seeds, trials=runs))[0].cards:
        assert card.sure == UNTESTED and "No classical baseline" in card.against[CLASSICAL]


def test_the_first_screen_says_what_also_differs(five_seeds: Results) -> None:
    """The names of the confounds, and the objective, which is part of no architecture; not what the
    axis itself is."""
    found = {each.axis: each.besides for each in answers(five_seeds)[0].mattered[CLASSICAL]}
    assert "objective" in found["architecture"]
    assert "tokenizer trained on" in found["training set"]
    assert "tokens seen" not in found["pretrained"] and "bytes read" not in found["pretrained"]
    asked = [question for question in five_seeds.questions if question.axis == "training set"]
    number = sum(question.num_tasks for question in asked)
    changed, *others = asked[0].contrasts
    changed = replace(changed, settings=(*changed.settings, "rows: 10 v. 20"))
    (of_axis,) = what_mattered([replace(asked[0], contrasts=(changed, *others)), *asked[1:]])
    assert of_axis.besides == (
        f"Also differs: tokenizer trained on in all; rows in 1 of {number} contrasts."
    )


def test_a_baseline_that_is_first_may_be_as_good_as_a_run(five_seeds: Results) -> None:
    for value, sure in ((0.999, "clearly"), (0.564, "may be as good")):
        cards = answers(with_baseline_at(five_seeds, value))[0].cards
        chips = [card.chip for card in cards if card.sure == BASELINE]
        assert any(sure in chip for chip in chips)
        assert value < 0.9 or len(chips) == len(METRICS) and all(sure in chip for chip in chips)
    for card in answers(with_baseline_at(five_seeds, 0.2))[0].cards:
        assert card.chip == card.sure


def test_the_chip_and_the_cheapest_choice_say_the_same_of_a_run_that_is_behind(
    five_seeds: Results,
) -> None:
    """Also where the difference is significant before correction only."""
    seen = set()
    for value in np.linspace(0.564, 0.584, 6):
        for card in answers(with_baseline_at(five_seeds, float(value)))[0].cards:
            if card.sure == BASELINE:
                assert ("a model may be as good" in card.chip) == (
                    "No model may" not in card.cheapest
                )
                seen.add(card.chip)
    assert len(seen) == 3 and any("before correction only" in chip for chip in seen)


def test_the_verdict_counts_the_tasks_with_a_model_ahead(five_seeds: Results) -> None:
    """And none without a test: of every task it tells one thing."""
    num_tasks = len(METRICS)
    for value, expected in (
        (0.2, f"On {num_tasks} of {num_tasks} tasks"),
        (0.999, f"On none of {num_tasks} tasks is a model ahead"),
    ):
        assert expected in answers(with_baseline_at(five_seeds, value))[0].verdict
    for value in np.linspace(0.4, 0.7, 7):
        found = answers(with_baseline_at(five_seeds, float(value)))[0]
        ahead = [card.task for card in found.cards if card.sure == LEADS]
        behind = [card.task for card in found.cards if card.chip == f"{BASELINE}, clearly"]
        first, *rest = found.verdict.split("; ")
        assert f"On {len(ahead) or 'none'} of {num_tasks}" in first
        assert all(f"`{task}`" in first for task in ahead)
        assert any("the baseline is ahead" in part for part in rest) == bool(behind)
        named = [task for task in METRICS if f"`{task}`" in found.verdict]
        assert len(named) == (0 if f"on all {num_tasks} " in found.verdict else num_tasks)
    runs = [t for t in five_seeds.trials if t.run in five_seeds.params.pretrain]
    assert answers(replace(five_seeds, trials=runs))[0].verdict == ""


def test_a_baseline_that_is_first_is_compared_with_the_best_model_once(five_seeds: Results) -> None:
    for card in answers(with_baseline_at(five_seeds, 0.999))[0].cards:
        assert "The best model, " in card.against[CLASSICAL]
        assert "Next best" not in card.otherwise
