"""The first screen says what the numbers say, and recommends no loser."""

from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest

from stages.core.params import NONE
from stages.evaluation.metrics import POINTS, scale_of
from stages.findings.answers import Standing, Tie, rivals, tie_of
from stages.findings.axes import Confound
from stages.findings.results import Results
from stages.findings.verdicts import Family, Verdict
from stages.reporting.formats import in_parentheses, seconds
from stages.reporting.page import pages
from stages.reporting.words.answer import (
    ANY,
    RULE,
    Card,
    _verdict,
    answer_rows,
    answers,
    luck,
    ties,
)
from stages.reporting.words.names import reason, verdict
from stages.reporting.words.tables import confound_rows
from stages.reporting.words.what_mattered import what_mattered
from tests.study_results import with_baseline_at
from tests.synthetic_study import METRICS


def cards_of(results: Results) -> list[Card]:
    return answers(results)[0].cards


def test_every_choice_has_an_answer_for_every_task(five_seeds: Results) -> None:
    all_answers = answers(five_seeds)
    choices = [(answer.label_budget, answer.method) for answer in all_answers]
    assert choices == [("200", ANY), ("200", "full"), ("200", "linear_probe")]
    for answer in all_answers:
        assert [card.task for card in answer.cards] == list(METRICS)
        for card in answer.cards:
            is_baseline = card.standing is Standing.BASELINE
            assert answer.method in (ANY, card.best.method) or is_baseline
    many = {answer.method: answer.chosen for answer in all_answers}
    assert "(highest of 10 means)" in many["any"] and "(highest of 6 means)" in many["full"]


@pytest.mark.parametrize("value", [0.2, 0.999])
def test_what_is_recommended_has_the_best_mean_of_all(five_seeds: Results, value: float) -> None:
    results = with_baseline_at(five_seeds, value)
    for card in cards_of(results):
        cells = [cell for cell in results.scores.cells if cell.task == card.task]
        best = max(cells, key=lambda cell: cell.mean.value)
        assert card.best is best
        assert f"`{best.group}`" in card.use and POINTS.shown(best.mean.value) in card.use
        is_baseline = card.standing is Standing.BASELINE
        assert is_baseline == (value > 0.9) == ("The best model, " in card.against)
        assert not is_baseline or "Next best" not in card.otherwise  # already in `against`


def test_one_pretraining_seed_claims_nothing(results: Results) -> None:
    for card in cards_of(with_baseline_at(results, 0.2)):
        assert card.standing is Standing.UNTESTED
        assert Verdict.ONE_SEED.value in card.against
        phrases = "was not tested", "were not tested", "Every model differs"
        assert any(words in card.runs for words in phrases)
    for value in (0.2, 0.999):
        sentence = answers(with_baseline_at(results, value))[0].verdict
        assert sentence.startswith("On none of") and "nothing was tested" in sentence
        assert "may be chance" not in sentence and "the baseline is ahead" not in sentence
    best = results.best_runs[None]["tag", "200"]
    ranked = rivals(best, results.scores, results.contrasts_of)
    assert ties(ranked).endswith(f" {len(ranked) - 1} are in no contrast with it.")


@pytest.mark.parametrize(("value", "beginning"), [(0.2, "A model is"), (0.999, "No model is")])
def test_verdict_on_one_task_counts_no_tasks(
    five_seeds: Results, value: float, beginning: str
) -> None:
    best_runs = with_baseline_at(five_seeds, value).best_runs[None]
    one = [best for (task, _), best in best_runs.items() if task == "tag"]
    sentence = _verdict(one)
    assert sentence.startswith(f"{beginning} ahead of the best classical baseline")
    assert "task" not in sentence


def test_what_mattered_tells_the_effects_averaged_over_tasks(five_seeds: Results) -> None:
    """The mean, interval and verdict are from the comparison with the smallest p-value."""
    for answer in answers(five_seeds):
        mattered = {each.axis: " ".join(each.lines) for each in answer.mattered}
        questions = [
            question
            for question in five_seeds.questions
            if question.axis == "pretrained" and answer.method in (ANY, question.first.method)
        ]
        first = min(questions, key=lambda question: question.p_holm or 0.0)
        assert first.significant and first.num_tasks == len(METRICS)
        mean = scale_of(first.metric).signed(first.effect.value)
        sentence = mattered["pretrained"]
        assert f": {mean} points on average (" in sentence
        on_tasks = ", ".join(
            f"{scale_of(c.metric).signed(c.effect.value)} on `{c.task}`"
            + " (significant)" * c.significant
            for c in first.contrasts
        )
        assert f"), {verdict(first)}; {on_tasks}; " in sentence
        assert "(significant)" in on_tasks


def test_what_mattered_tells_the_comparisons_from_scratch(five_seeds: Results) -> None:
    question = next(q for q in five_seeds.questions if q.axis == "architecture")
    first = question.first
    trials = tuple(replace(trial, objective=NONE) for trial in first.a.trials)
    of_scratch = replace(first, a=replace(first.a, group="from_nothing", trials=trials))
    (of_axis,) = what_mattered([replace(question, contrasts=(of_scratch,)), question])
    assert f"`from_nothing` against `{first.b.group}`: " in of_axis.lines[0]


def test_of_many_tasks_what_mattered_tells_the_extremes(
    five_seeds: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.reporting.words.what_mattered.FEW_TASKS", 1)
    question = next(q for q in five_seeds.questions if q.num_tasks > 1)
    (of_axis,) = what_mattered([question])
    largest, smallest = (
        f"{scale_of(c.metric).signed(c.effect.value)} on `{c.task}`"
        for c in (question.by_size[0], question.by_size[-1])
    )
    where = of_axis.lines[0].partition("; ")[2].replace(" (significant)", "")
    assert where.startswith(f"from {largest} to {smallest}; ")


def test_what_mattered_tells_methods_apart(five_seeds: Results) -> None:
    """A probe's comparisons follow those of full fine-tuning, under its own name."""
    first = answers(five_seeds)[0].mattered
    for of_axis in first:
        if of_axis.axis != "method":
            sentences = " ".join(of_axis.lines).removeprefix("With `full`: ")
            full, probe = sentences.split("With `linear_probe`: ")
            assert full and probe and "`full`" not in full + probe
    (answer,) = [a for a in answers(five_seeds) if a.method == "linear_probe"]
    assert all("With `" not in " ".join(each.lines) for each in answer.mattered)


def test_a_verdict_before_correction_only_says_what_p_must_be(five_seeds: Results) -> None:
    """Questions and single tasks say so; the test of ties covers the best baseline."""
    seen, evaluation = set(), five_seeds.params.evaluation
    tested = [*five_seeds.questions, *five_seeds.contrasts]
    for confidence in (0.8, 0.9, 0.99, 0.999):
        stricter = evaluation.model_copy(update={"confidence": confidence})
        params = five_seeds.params.model_copy(update={"evaluation": stricter})
        results = replace(five_seeds, params=params)
        tested += [*results.questions, *results.contrasts]
    for comparison in tested:
        why, p_value = reason(comparison), comparison.effect.p_value
        assert bool(why) == (comparison.verdict is Verdict.BEFORE_CORRECTION)
        if not why or comparison.threshold is None:
            continue
        seen.add((comparison.threshold.family, comparison.threshold.p_value is None))
        if comparison.threshold.p_value is not None:
            assert p_value and f"this is {p_value:.2g}" in why
            assert comparison.threshold.p_value <= p_value
            assert (
                f"among {comparison.threshold.num_tests} {comparison.threshold.family.value}" in why
            )
    assert seen >= {(Family.QUESTIONS, False), (Family.TASKS, True)}
    text = pages.markdown(five_seeds)
    assert all(reason(contrast) in text for contrast in five_seeds.contrasts)


def test_the_first_screen_says_what_also_differs(five_seeds: Results) -> None:
    """The screen names the confounds, without the axis itself; the table of confounds also has
    their values."""
    sentences = {each.axis: " ".join(each.lines) for each in answers(five_seeds)[0].mattered}
    assert "; also differs: objective" in sentences["architecture"]
    pairs = [row for row in confound_rows(five_seeds.contrasts) if row["axis"] == "architecture"]
    objectives = {(row["first"], row["second"]): row["also differs"] for row in pairs}
    assert "objective: mlm v. causal" in objectives["encoder_mlm", "decoder_causal"]
    assert "tokenizer trained on" in sentences["training set"]
    assert "tokens seen" not in sentences["pretrained"]
    assert "bytes read" not in sentences["pretrained"]
    question = next(q for q in five_seeds.questions if q.axis == "training set")
    changed, *others = question.contrasts
    changed = replace(changed, settings=(*changed.settings, Confound("rows", (10, 20))))
    (of_axis,) = what_mattered([replace(question, contrasts=(changed, *others))])
    (line,) = of_axis.lines
    assert line.endswith(
        f"; also differs: tokenizer trained on, rows in 1 of {question.num_tasks} tasks."
    )


def test_a_comparison_in_which_nothing_else_differs_comes_first(five_seeds: Results) -> None:
    confounded = next(q for q in five_seeds.questions if q.axis == "architecture")
    twins = [replace(c, b=replace(c.a, group="twin"), settings=()) for c in confounded.contrasts]
    clean = replace(confounded, contrasts=tuple(twins), p_holm=1.0)
    (of_axis,) = what_mattered([confounded, clean])
    assert of_axis.lines[0].endswith("; nothing else that is counted differs.")


def test_tasks_that_disagree_in_sign_have_no_mean(
    five_seeds: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = replace(next(q for q in five_seeds.questions if q.num_tasks > 1))
    monkeypatch.setattr(type(question), "tasks_disagree", True)
    ((line,),) = (each.lines for each in what_mattered([question]))
    first = scale_of(question.metric).signed(question.first.effect.value)
    assert f": tasks disagree in sign, {first} on `{question.first.task}`" in line
    assert " (points); also differs: " in line and "average" not in line


def test_the_table_of_confounds_counts_a_contrast_once(five_seeds: Results) -> None:
    """Two confounds of one name, one for each side of a contrast, count once."""
    first, *others = next(q for q in five_seeds.questions if q.num_tasks > 1).contrasts
    both = Confound("rows", (10, 20)), Confound("rows", (30, 40))
    (row,) = confound_rows([replace(first, settings=both), *others])
    assert f"rows (in 1 of {1 + len(others)})" in row["also differs"]


def test_a_study_without_baselines_says_so(five_seeds: Results) -> None:
    runs = [t for t in five_seeds.trials if t.run in five_seeds.params.runs]
    (answer, *_) = answers(replace(five_seeds, trials=runs))
    assert answer.verdict == ""
    for card in answer.cards:
        assert card.standing is Standing.UNTESTED
        assert "No classical baseline" in card.against


def test_chip_card_cheapest_figure_and_markdown_agree_on_ties(five_seeds: Results) -> None:
    """The best run and the best baseline tie in all four or in none, whichever leads."""
    seen = set()
    for value in (*np.linspace(0.535, 0.584, 8).tolist(), 0.999, 0.2):
        results = with_baseline_at(five_seeds, value)
        text = pages.markdown(results)
        for card, best in zip(cards_of(results), results.best_runs[None].values(), strict=True):
            tie = tie_of(best)
            seen.add((tie, best.run_is_ahead))
            assert ("may be as good" in card.chip) == (tie is Tie.TIED)
            assert ("before correction only" in card.chip) == (tie is Tie.UNSURE)
            named = {"FLOPs" in card.cheapest, "a classical baseline" in card.cheapest}
            assert (named == {True}) == (tie is Tie.TIED)
            assert verdict(best) + in_parentheses(reason(best)) in card.against
            assert bool(reason(best)) == (tie is Tie.UNSURE)
            ranked = rivals(best, results.scores, results.contrasts_of)
            (of_baseline,) = [r.tie for r in ranked if r.cell is best.strongest]
            assert of_baseline is tie
            (line,) = [line for line in text.splitlines() if f"(`{card.task}`, 200" in line]
            assert f"Cheapest that may be the best: {card.cheapest}" in line
            chip, standing = card.chip.capitalize(), card.standing.value.capitalize()
            assert f"_{chip}._" in line and chip.startswith(standing)
        assert text.count(RULE) == 1
    every = {(tie, ahead) for tie in (Tie.TIED, Tie.UNSURE, Tie.APART) for ahead in (True, False)}
    assert seen == every


def test_a_card_says_if_many_training_texts_of_the_best_run_are_cut(
    five_seeds: Results,
) -> None:
    """At most a fifth is not worth a sentence; other splits and other runs do not count."""
    for card, best in zip(cards_of(five_seeds), five_seeds.best_runs[None].values(), strict=True):
        noted = "Note: 80% of the training texts of "
        for split, cut, expected in (
            ("train", 160, True),
            ("train", 40, False),
            ("test", 160, False),
        ):
            records = [
                replace(record, rows_cut=cut)
                if (record.run, record.split) == (best.run.group, split)
                else record
                for record in five_seeds.inputs[card.task]
            ]
            changed = replace(five_seeds, inputs=five_seeds.inputs | {card.task: records})
            assert (noted in pages.markdown(changed)) == expected
            (row,) = [row for row in answer_rows(changed) if row["task"] == card.task]
            tokens = five_seeds.params.finetune.max_tokens
            sentence = f"{noted}{best.run.group} are cut at {tokens} tokens (finetune.max_tokens)."
            assert row["against"].endswith(sentence) == expected


def test_the_sentence_on_other_models_says_no_more_than_there_is(five_seeds: Results) -> None:
    """No sentence has "none", and Markdown has no double blank where a sentence is missing."""
    for value in (0.2, 0.999):
        results = with_baseline_at(five_seeds, value)
        assert all("none" not in card.runs for card in cards_of(results))
        lines = pages.markdown(results).splitlines()
        answered = [line for line in lines if "Cheapest that may be the best" in line]
        assert answered and not any("  " in line for line in answered)


def test_the_verdict_counts_the_tasks_with_a_model_ahead(five_seeds: Results) -> None:
    """Untested leads do not count, and every task is covered."""
    num_tasks = len(METRICS)
    for value in (0.2, 0.999, *np.linspace(0.4, 0.7, 7).tolist()):
        answer = answers(with_baseline_at(five_seeds, value))[0]
        ahead = [card.task for card in answer.cards if card.standing is Standing.LEADS]
        behind = [card.task for card in answer.cards if card.chip == "baseline first, clearly"]
        assert value not in (0.2, 0.999) or len(ahead if value < 0.9 else behind) == num_tasks
        first, *rest = answer.verdict.split("; ")
        assert f"On {len(ahead) or 'none'} of {num_tasks}" in first
        assert all(f"`{task}`" in first for task in ahead)
        assert any("the baseline is ahead" in part for part in rest) == bool(behind)
        named = [task for task in METRICS if f"`{task}`" in answer.verdict]
        assert len(named) == (0 if f"on all {num_tasks} " in answer.verdict else num_tasks)


def test_what_a_training_takes_is_the_mean_of_its_trials(five_seeds: Results) -> None:
    for card in cards_of(with_baseline_at(five_seeds, 0.2)):
        costs = five_seeds.costs.of_trials([card.best])
        assert len(costs) == len(card.best.trials)
        assert seconds(fmean(cost.wall_time_s for cost in costs)) in card.takes
        assert costs[0].hardware in card.takes
    assert {card.takes for card in cards_of(with_baseline_at(five_seeds, 0.999))} == {""}


def test_the_table_holds_the_first_answer_of_every_task_and_number_of_labels(
    five_seeds: Results,
) -> None:
    table = answer_rows(five_seeds)
    places = [(row["task"], row["label_budget"]) for row in table]
    assert sorted(places) == sorted({(c.task, c.label_budget) for c in five_seeds.scores.cells})
    for row in table:
        assert row["low"] <= row["mean"] <= row["high"]
        assert str(row["run"]) in str(row["use"]) and "`" not in "".join(map(str, row.values()))


def test_luck_that_is_unknown_is_said_once_with_its_reason(five_seeds: Results) -> None:
    methods = five_seeds.scores.methods
    alone = [t for t in five_seeds.trials if (t.pretrain_seed, t.finetune_seed) == (1, 1)]
    sentence = luck(replace(five_seeds, trials=alone).scores, "200", methods)
    assert (
        sentence.count("unknown") == 1 and "one trial" in sentence and "(highest of" not in sentence
    )
    assert "unknown" not in luck(five_seeds.scores, "200", methods)
    some = [t for t in five_seeds.trials if t.task != "tag" or t in alone]
    partly = luck(replace(five_seeds, trials=some).scores, "200", methods)
    assert "on `type` (highest of" in partly and "How much on `tag` is unknown" in partly
