"""What a sceptical reviewer would ask: each question of a study to which there is an objection, and
of one to which there is none."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.evaluation.records import CLASSICAL, ScoredTrial
from stages.evaluation.variance import Between, Variance
from stages.models.encoder import Encoder
from stages.reporting.comparison.audit import data, evidence, training
from stages.reporting.comparison.audit.check import Check
from stages.reporting.comparison.audit.questions import QUESTIONS, audit, summary
from stages.reporting.comparison.results import Results, load
from stages.reporting.page import pages
from stages.tasks.tagging import Tagging
from tests.synthetic_study import RUNS, public, raw_params, repeated, run, write_study

Change = Callable[[dict[str, Any]], None]


def study(
    root: Path, monkeypatch: pytest.MonkeyPatch, runs: dict[str, Any] = RUNS, **changes: Any
) -> Results:
    """A study with one task, and with other values of ``finetune:``."""
    raw = raw_params(runs)
    raw["tasks"] = {"type": raw["tasks"]["type"]}
    raw["finetune"] |= changes
    monkeypatch.chdir(root)
    return load(write_study(root, raw))


def changed(results: Results, which: Callable[[ScoredTrial], bool], **values: Any) -> Results:
    """The trials that ``which`` names have other values."""
    trials = [replace(t, **values) if which(t) else t for t in results.trials]
    return replace(results, trials=trials)


def full(trial: ScoredTrial) -> bool:
    return trial.method == "full"


def solved(trial: ScoredTrial) -> bool:
    return trial.method == "linear_probe"


def objection(check: Check) -> bool | None:
    assert check.question.endswith("?") and check.answer.endswith(".")
    return check.objection


# Training ----------------------------------------------------------------------------------------


def test_one_probe_without_a_minimum_is_an_objection_and_is_named(results: Results) -> None:
    assert objection(training.probes(results)) is False
    lost = changed(results, lambda t: solved(t) and t.run == "encoder_mlm", converged=0)
    check = training.probes(lost)
    assert objection(check) is True and "90 of 105" in check.answer
    assert len(check.details) == 3 and all("encoder_mlm on" in each for each in check.details)


@pytest.mark.parametrize(("seeds", "expected"), [(1, False), (2, True)])
def test_strengths_at_an_edge_are_an_objection_from_a_share_on(results, seeds, expected) -> None:
    """One or two of five seeds, against the share of 20%."""
    edge = changed(results, lambda t: solved(t) and t.finetune_seed <= seeds, at_edge=1)
    assert objection(training.probes(edge)) is expected


def test_without_probes_there_is_nothing_to_ask(results: Results) -> None:
    none = changed(results, solved, converged=None)
    assert objection(training.probes(none)) is None


def test_fine_tuning_that_still_improves_is_an_objection(results: Results) -> None:
    assert objection(training.end_of_finetuning(results)) is False
    late = changed(results, full, best_is_last=1)  # by itself no sign
    assert objection(training.end_of_finetuning(late)) is False
    short = changed(late, lambda t: full(t) and t.run == "decoder_scratch", still_improving=1)
    check = training.end_of_finetuning(short)
    assert objection(check) is True and "3 of 21 cells" in check.answer
    assert "0 their last one, which was the best on validation in 105" in check.answer
    kept = changed(short, full, best_epoch=short.trials[0].num_epochs)
    answer = training.end_of_finetuning(kept).answer
    assert "105 their last one, which was the best on validation in 105" in answer
    untrained = changed(results, full, num_epochs=0)
    assert objection(training.end_of_finetuning(untrained)) is None


def with_slope(results: Results, run: str, slope: float, *, every: int = 200) -> Results:
    """A validation loss of this slope per doubling of the steps."""
    progress = results.progress[run]
    history = [
        replace(step, validation_loss=5 + slope * float(np.log2(step.step)))
        if step.step % every == 0
        else replace(step, validation_loss=None)
        for step in progress.history
    ]
    return replace(results, progress=results.progress | {run: replace(progress, history=history)})


def test_a_pretraining_that_still_falls_or_says_too_little_is_an_objection(results) -> None:
    assert objection(training.end_of_pretraining(results)) is False
    falling = training.end_of_pretraining(with_slope(results, "decoder_causal", -0.4))
    assert objection(falling) is True and "1 of 5" in falling.answer and "0.400" in falling.answer
    assert falling.details == (f"decoder_causal: {chr(0x2212)}0.400",)
    unknown = training.end_of_pretraining(with_slope(results, "decoder_causal", 0, every=1000))
    assert objection(unknown) is True and unknown.details == ("decoder_causal: not known",)


def test_a_study_without_pretraining_is_not_asked_about_it(tmp_path, monkeypatch) -> None:
    scratch = {name: entry for name, entry in RUNS.items() if "scratch" in name}
    found = study(tmp_path, monkeypatch, scratch)
    for question in (
        training.end_of_pretraining,
        training.pretraining_rates,
        evidence.pretraining_seeds,
        data.overlap,
    ):
        assert objection(question(found)) is None


def test_one_rate_of_fine_tuning_is_an_objection_where_unlike_models_are_compared(
    results, tmp_path, monkeypatch
) -> None:
    assert objection(training.finetuning_rates(results)) is True
    names = ("encoder_mlm", "encoder_scientific")  # a contrast of training sets alone
    alike = study(tmp_path, monkeypatch, {name: RUNS[name] for name in names})
    assert objection(training.finetuning_rates(alike)) is False


def test_rates_of_fine_tuning_at_an_edge_are_an_objection(results: Results) -> None:
    several = changed(results, full, num_tries=3, at_edge=0)
    assert objection(training.finetuning_rates(several)) is False
    edge = changed(several, lambda t: full(t) and "scratch" in t.run, at_edge=1)
    check = training.finetuning_rates(edge)
    assert objection(check) is True and "29% of 105" in check.answer


@pytest.mark.parametrize(
    ("rates", "expected"), [([0.003], True), ([0.001, 0.003, 0.01], False), ([0.001, 0.003], True)]
)
def test_rates_of_pretraining_lie_inside_the_range_or_there_is_an_objection(
    rates, expected, tmp_path, monkeypatch
) -> None:
    """The synthetic study keeps the second of several."""
    runs = {name: {**RUNS[name]} for name in ("encoder_mlm", "decoder_causal")}
    for entry in runs.values():
        entry["training"] = entry["training"] | {"lr": rates}
    found = study(tmp_path, monkeypatch, runs)
    assert objection(training.pretraining_rates(found)) is expected


def test_unequal_tries_are_an_objection(results: Results) -> None:
    check = training.tries(results)
    assert objection(check) is True and "1 to 6" in check.answer
    assert {"full: 1", "linear_probe: 6", "baseline tfidf: 4"} <= {*check.details}
    equal = changed(results, lambda _: True, num_tries=4)
    equal = changed(equal, lambda t: t.run == "majority", num_tries=1)  # has nothing to choose
    assert objection(training.tries(equal)) is False
    more = changed(equal, lambda t: t.method == CLASSICAL and t.run == "tfidf", num_tries=8)
    assert objection(training.tries(more)) is True


# Data --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"label_budgets": [200]}, False),
        ({"label_budgets": [200, "all"]}, True),
        ({"label_budgets": [1200]}, True),  # all of the 1,200 rows
        ({"seeds": [1]}, True),
    ],
)
def test_trials_that_share_one_sample_of_labels_are_an_objection(
    settings, expected, tmp_path, monkeypatch
) -> None:
    found = study(tmp_path, monkeypatch, {"encoder_mlm": RUNS["encoder_mlm"]}, **settings)
    check = data.labelled_rows(found)
    assert objection(check) is expected
    assert ("nested" in check.answer) == (len(found.label_budgets) > 1)
    distinct = [int(each.rpartition(": ")[2]) for each in check.details]
    assert (1 in distinct) == expected and ({*distinct} <= {1, 5})


@pytest.mark.parametrize(("budget", "expected"), [(200, False), (100, True)])
def test_more_labels_for_validation_than_for_training_are_an_objection(
    budget, expected, tmp_path, monkeypatch
) -> None:
    runs = {"encoder_mlm": RUNS["encoder_mlm"]}
    found = study(tmp_path, monkeypatch, runs, label_budgets=[budget])
    check = data.validation_labels(found)
    assert objection(check) is expected
    assert f"{200 / (200 + budget):.0%}" in check.answer


def with_inputs(results: Results, run: str, **values: Any) -> Results:
    records = [replace(r, **values) if r.run == run else r for r in results.inputs["tag"]]
    return replace(results, inputs=results.inputs | {"tag": records})


def test_cut_texts_are_an_objection_from_a_share_on(results: Results) -> None:
    assert objection(data.cut(results)) is False
    check = data.cut(with_inputs(results, "encoder_mlm", rows_cut=20))
    assert objection(check) is True and "10.0%" in check.answer and "tag: 10.0%" in check.details


def test_a_label_read_before_its_word_is_an_objection(results: Results) -> None:
    """As the task names the place where a causal model has not read the word."""
    assert objection(data.read_at(results)) is False
    task = Tagging.__new__(Tagging)
    task.is_causal, task.label_subwords = True, "first"
    place = task.states_read(Encoder.__new__(Encoder))  # it is named without a look at the model
    check = data.read_at(with_inputs(results, "decoder_causal", read_at=place))
    assert objection(check) is True and check.details[0].startswith("decoder_causal on tag")


def test_overlap_with_test_rows_is_an_objection_from_a_share_on(results: Results) -> None:
    check = data.overlap(results)
    assert objection(check) is False and "1.5%" in check.answer
    found = {pair: {**about, "tasks": {}} for pair, about in results.contamination.items()}
    for pair, about in found.items():
        for task, counts in results.contamination[pair]["tasks"].items():
            about["tasks"][task] = counts | {"ngram": 80 if task == "tag" else 15}
    check = data.overlap(replace(results, contamination=found))
    assert objection(check) is True and "8.0%" in check.answer


def test_what_a_public_checkpoint_has_read_is_an_objection(tmp_path, monkeypatch) -> None:
    runs = {"encoder_mlm": RUNS["encoder_mlm"], "bert": public("google-bert/bert-base-uncased")}
    check = data.overlap(study(tmp_path, monkeypatch, runs))
    assert objection(check) is True and "1 public" in check.answer


# Evidence ----------------------------------------------------------------------------------------


def test_one_pretraining_seed_is_an_objection(results: Results, five_seeds: Results) -> None:
    check = evidence.pretraining_seeds(results)
    assert objection(check) is True and "69 of 81" in check.answer
    check = evidence.pretraining_seeds(five_seeds)
    assert objection(check) is False and check.answer.startswith("5 for each run; 0 of ")


@pytest.mark.slow
def test_few_rows_for_small_differences_are_an_objection(results: Results) -> None:
    check = evidence.power(results)
    assert objection(check) is True and "1,000 test rows" in check.answer
    exact = replace(
        changed(results, lambda _: True, value=0.5),
        row_scores={
            key: np.full_like(rows, 0.5) + 0.01 * (np.arange(len(rows)) % 2)
            for key, rows in results.row_scores.items()
        },
    )
    assert "no contrast has an interval" in evidence.power(exact).answer
    steady = replace(
        results,
        row_scores={key: rows / 100 for key, rows in results.row_scores.items()},
        trials=[
            replace(t, value=0.5 + t.value / 100 if t.method == "full" else t.value / 100)
            for t in results.trials
        ],
    )
    assert objection(evidence.power(steady)) is False


@pytest.mark.parametrize(("seeds", "rows"), [(3, 200), (10, 1000)])
def test_the_smallest_effect_is_found_in_four_of_five_studies(seeds: int, rows: int) -> None:
    """Simulated, with an interval of each study: seeds vary by 1 point, rows by 20 points."""
    rng = np.random.default_rng(1)
    planned = Variance(
        Between(0.01**2 / seeds, seeds - 1, 0.0, None, seeds), 0.2**2 / rows, rows, True
    )
    effect = evidence.smallest_effect(planned, 0.95)
    found = 0
    for _ in range(2000):
        of_seeds, of_rows = rng.normal(0, 0.01, seeds), rng.normal(0, 0.2, rows)
        units = float(np.var(of_seeds, ddof=1)) / seeds
        between = Between(units, seeds - 1, 0.0, None, seeds)
        variance = Variance(between, float(np.var(of_rows, ddof=1)) / rows, rows, True)
        found += abs(effect + of_seeds.mean() + of_rows.mean()) > variance.half_width(0.95)
    assert found / 2000 == pytest.approx(0.8, abs=0.04)


def test_a_model_compared_with_itself_is_an_objection(results: Results) -> None:
    assert objection(evidence.identical(results)) is False
    compared = [c for c in results.contrasts if c.axis == "architecture"]
    one = next(c for c in compared if c.a.group.endswith("_scratch"))
    design = one.a.trials[0].design
    twin = replace(one, b=replace(one.b, trials=(replace(one.b.trials[0], design=design),)))
    broken = replace(results)
    broken.__dict__["contrasts"] = [twin]
    check = evidence.identical(broken)
    assert objection(check) is True and "1 of 1" in check.answer and len(check.details) == 1


def test_comparisons_that_sizes_forbid_are_an_objection(results, tmp_path, monkeypatch) -> None:
    check = evidence.missing_comparisons(results)
    assert objection(check) is True and "sizes too far apart" in check.answer
    names = ("encoder_mlm", "encoder_scratch")
    whole = study(tmp_path, monkeypatch, {name: RUNS[name] for name in names})
    check = evidence.missing_comparisons(whole)
    assert objection(check) is False and check.details == ()


def test_a_run_that_is_compared_with_none_is_an_objection(tmp_path, monkeypatch) -> None:
    runs = {
        "encoder_mlm": RUNS["encoder_mlm"],
        "encoder_small": RUNS["encoder_small"],
        "odd": run("decoder", "causal", "scientific", d_model=48),
    }
    check = evidence.missing_comparisons(study(tmp_path, monkeypatch, runs))
    assert objection(check) is True and check.details[0].startswith("odd")


def test_confounds_are_an_objection(results, tmp_path, monkeypatch) -> None:
    check = evidence.confounds(results)
    assert objection(check) is True and "18 of 36" in check.answer
    assert not any("trained parameters" in each for each in check.details)  # a size is that
    names = ("encoder_scientific", "encoder_deep_learning")
    clean = study(tmp_path, monkeypatch, {name: RUNS[name] for name in names})
    check = evidence.confounds(clean)
    assert objection(check) is False and check.details == () and "2 of 2" in check.answer


def test_baselines_that_are_not_beaten_are_an_objection(results, tmp_path, monkeypatch) -> None:
    check = evidence.baselines(results)
    assert objection(check) is True and "On 1 of 3" in check.answer
    assert sum(": yes, " in each for each in check.details) == 1
    weak = changed(results, lambda t: t.method == CLASSICAL, value=0.1)
    weak = replace(
        weak,
        row_scores={
            key: rows - rows.mean() + 0.1 if key[2] == CLASSICAL else rows
            for key, rows in weak.row_scores.items()
        },
    )
    assert objection(evidence.baselines(weak)) is False
    raw = raw_params({"encoder_mlm": RUNS["encoder_mlm"]}) | {"baselines": {}}
    monkeypatch.chdir(tmp_path)
    assert objection(evidence.baselines(load(write_study(tmp_path, raw)))) is True


# The pages ---------------------------------------------------------------------------------------


def test_the_summary_counts_each_question_once(results: Results) -> None:
    checks = audit(results)
    assert len(checks) == len(QUESTIONS) == len({check.question for check in checks})
    assert summary(checks).startswith(f"Audit: {len(QUESTIONS)} questions, 9 without objection")
    made = [Check("?", ".", each) for each in (False, False, True, None)]
    assert summary(made) == (
        "Audit: 4 questions, 2 without objection, 1 with an objection, 1 that does not apply"
    )


@pytest.mark.slow
def test_the_page_in_markdown_begins_with_the_summary_and_has_every_question(results) -> None:
    text = pages.markdown(results)
    checks = audit(results)
    assert text.index(summary(checks)) < text.index("\n## ")
    table = text[text.index("## Audit") : text.index("## Tasks")]
    for check in checks:
        assert f"| {check.question} |" in table
    assert table.count("**objection**") == sum(check.objection is True for check in checks)


@pytest.mark.parametrize("seeds", [2])
def test_every_question_has_an_answer_for_a_study_with_several_seeds(
    seeds, tmp_path, monkeypatch
) -> None:
    runs = repeated({"encoder_mlm": RUNS["encoder_mlm"]}, seeds)
    for check in audit(study(tmp_path, monkeypatch, runs)):
        assert "nan" not in check.answer and objection(check) in (True, False, None)
