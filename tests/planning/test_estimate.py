"""The estimate of a study: its pending stages and what they cost."""

import io
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from rich.console import Console

from stages.core.params import Params, Screen
from stages.planning import tables
from stages.planning.estimate import (
    SUMMED,
    Estimate,
    as_record,
    duration_range,
    made,
    num_trainings,
    of_all_jobs,
    screened,
    totals,
)
from stages.planning.finetuning_costs import Finetuning
from tests.planning.studies import every_stage, with_finetune, with_gpt2
from tests.small_study import SCRATCH as SCRATCH_RUN
from tests.small_study import write_study
from tests.smoke import alone
from tests.synthetic_study import RUNS, raw_params, repeated


def screen_text(estimate: Estimate) -> list[str]:
    """Returns the lines that `make plan` shows."""
    shown = io.StringIO()
    tables.show(estimate, Console(file=shown, width=100))
    return shown.getvalue().splitlines()


def first_words(lines: list[str]) -> dict[str, list[str]]:
    return {words[0]: words[1:] for line in lines if (words := line.split())}


def test_made_estimates_everything_that_is_pending(fresh: Params) -> None:
    estimate = made(fresh, every_stage(fresh))
    assert {cost.run for cost in estimate.pretrain if cost.pending} == {*fresh.runs}
    assert len(estimate.finetune) == 4 * 2 * 2 and all(c.pending for c in estimate.finetune)
    assert all(cost.seconds for cost in estimate.finetune)
    assert estimate.side_by_side == 2
    record = json.loads(json.dumps(as_record(estimate)))
    assert record["pretrain"] == [asdict(cost) for cost in estimate.pretrain]
    total = record["totals"]
    flops = [cost.flops for cost in estimate.pretrain if cost.flops is not None]
    assert total["pretrain"]["flops"] == sum(flops)
    for name in SUMMED:
        both = total["pretrain"][name] + total["finetune"][name]
        assert total["all"][name] == pytest.approx(both)
    assert total["finetune"]["stages"] == 2 and total["all"]["stages"] == len(every_stage(fresh))


def test_headline_counts_what_runs_and_says_how_long_it_takes(fresh: Params) -> None:
    """Neither runs without an objective nor stored trials are counted."""
    estimate = made(fresh, every_stage(fresh))
    (first, *_) = screen_text(estimate)
    trained = [cost for cost in estimate.pretrain if cost.objective != "none"]
    trials = sum(cost.num_trials for cost in estimate.finetune)
    counted = f"{len(trained)} pretrainings and {trials} trials, in at least about "
    assert first.startswith(f"To run: {len(estimate.stages)} stages with {counted}")
    seconds = totals(estimate)["all"]["seconds"]
    range_of = duration_range(estimate)
    assert range_of == pytest.approx((seconds, seconds / 1.3, seconds * 1.3))
    estimate.finetune[0].num_stored = 1
    assert num_trainings(estimate) == (len(trained), trials - 1)


def test_all_jobs_of_this_machine_take_less_time_than_one(
    fresh: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.core.parallel.cores", lambda: 3 * fresh.compute.threads)
    estimate = made(fresh, every_stage(fresh))
    one = totals(estimate)["all"]["seconds"]
    assert estimate.jobs == 3 and one / 3 <= of_all_jobs(estimate) < one
    alone = replace(estimate, jobs=1, finetune=[])
    pretrained = totals(alone)["all"]["seconds"]
    assert of_all_jobs(alone) == pytest.approx(pretrained)


def test_made_estimates_nothing_for_what_is_done(fresh: Params) -> None:
    estimate = made(fresh, ["encode_corpus@prose-unigram", "pretrain@encoder_mlm"])
    [mlm] = estimate.pending
    total = totals(estimate)
    assert mlm.run == "encoder_mlm" and total["all"]["flops"] == mlm.flops
    assert total["finetune"]["stages"] == 0 and total["finetune"]["seconds"] is None


def test_totals_count_what_is_unknown(fresh: Params) -> None:
    """The time of a stage that never ran here is unknown, and so is every training of a checkpoint
    that is not downloaded."""
    params = with_gpt2(fresh)
    total = totals(made(params, [*every_stage(params), "pretrain@gpt2"]))
    others = [stage for stage in every_stage(params) if "pretrain" not in stage]
    assert total["others"]["unknown"] == len(others) - len(params.tasks)
    assert total["all"]["unknown"] == total["others"]["unknown"] + 1 + len(params.tasks) * 2
    assert total["all"]["unknown_sizes"] == 1 + len(params.tasks) * 2


# A screen.

SCRATCH = {"encoder_scratch", "decoder_scratch"}


def screening(keep: int, seeds: int = 1) -> tuple[Params, list[Finetuning]]:
    """Returns a study with a screen and its costs, which rise in the order of the runs and, on
    ``type``, fall."""
    params = Params(**raw_params(repeated(RUNS, seeds)))
    params = with_finetune(params, screen=Screen(by="knn", keep=keep))
    costs = [
        Finetuning(run, task, "full", 5 * seeds, flops=i, pending=True, seconds=float(i))
        for task in params.tasks
        for i, run in enumerate([*params.runs][:: -1 if task == "type" else 1])
    ]
    return params, costs


def screen_of(params: Params) -> Screen:
    assert params.finetune.screen is not None
    return params.finetune.screen


def runs_on(costs: list[Finetuning], task: str) -> set[str]:
    return {cost.run for cost in costs if cost.task == task}


@pytest.mark.parametrize("seeds", [1, 3])
def test_screened_keeps_the_most_expensive_or_the_cheapest_runs(seeds: int) -> None:
    params, costs = screening(2, seeds)
    most, least = screened(params.runs, screen_of(params), costs)
    last, first = {"encoder_deep_learning", "encoder_scientific"}, {"encoder_mlm", "decoder_causal"}
    for task in params.tasks:
        expensive, cheap = (first, last) if task == "type" else (last, first)
        assert runs_on(most, task) == expensive | SCRATCH
        assert runs_on(least, task) == cheap | SCRATCH
    stages = [f"finetune@{task}" for task in params.tasks]
    notes = "\n".join(tables.notes(Estimate(params, stages, [], most, [], 1, least)))
    assert "finetune.screen" in notes and f"at most {3 * 4 * 5 * seeds} trials" in notes


def test_screened_takes_an_unknown_cost_for_the_largest() -> None:
    params, costs = screening(1)
    costs = [replace(c, seconds=None, flops=None) if c.run == "encoder_small" else c for c in costs]
    most, _ = screened(params.runs, screen_of(params), costs)
    assert all(runs_on(most, task) == {"encoder_small", *SCRATCH} for task in params.tasks)


@pytest.mark.parametrize("keep", [5, 9])
def test_screened_leaves_nothing_out_if_it_keeps_all(keep: int) -> None:
    params, costs = screening(keep)
    assert screened(params.runs, screen_of(params), costs) == (costs, costs)


# What `make plan` shows.


def test_show_has_a_line_for_each_run(fresh: Params) -> None:
    params = with_gpt2(fresh)
    estimate = made(params, [])
    lines = screen_text(estimate)
    assert "Nothing to run: every stage is up to date." in lines
    rows = first_words(lines)
    assert [name for name in rows if name in params.runs] == [*params.runs]
    assert rows["encoder_mlm"][:2] == ["mlm", "1"] and rows["decoder_causal"][4] == "0.04M"
    assert rows["encoder_scratch"][3:6] == ["–", "–", "–"]
    assert rows["gpt2"] == ["hub", "1", "–", "–", "–", "–", "done", "–"]


def test_show_is_as_wide_as_the_readme_and_says_what_it_rests_on(fresh: Params) -> None:
    lines = screen_text(made(fresh, every_stage(fresh)))
    text = " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= 100
    assert "2 finetune" in text and "Calibration" in text and "finetune.max_tokens" in text


def test_show_says_at_least_where_something_is_unknown(fresh: Params) -> None:
    """Only sums that leave something out have a ≥: the time alone, or the sizes too."""
    corpus = "encode_corpus@prose-unigram"
    rows = first_words(screen_text(made(fresh, [corpus, "pretrain@encoder_mlm"])))
    assert "≥" not in rows["pretraining"] and rows["in"].count("≥") == 1
    params = with_gpt2(fresh)
    lines = screen_text(made(params, [corpus, "pretrain@encoder_mlm", "pretrain@gpt2"]))
    assert first_words(lines)["pretraining"].count("≥") == 5
    assert any("at least" in line for line in lines) and max(map(len, lines)) <= 100


def test_notes_say_what_is_left_out(fresh: Params) -> None:
    tag = fresh.tasks["tag"].model_copy(update={"num_test": "all"})
    params = fresh.model_copy(update={"tasks": {"tag": tag}})
    notes = "\n".join(tables.notes(made(params, every_stage(params))))
    assert "the prediction of all rows" in notes and "the time of 5 other stages," in notes


def test_notes_count_what_the_stores_have(fresh: Params) -> None:
    estimate = made(fresh, every_stage(fresh))
    pretrain = [replace(cost, num_seeds=3, num_stored=1) for cost in estimate.pretrain]
    trials = [replace(cost, num_stored=1) for cost in estimate.finetune]
    notes = [*tables.notes(replace(estimate, pretrain=pretrain, finetune=trials))]
    assert "The store of checkpoints has 4 more, which take no time." in notes
    assert "The store of trials has 16 more, which take no time." in notes


def test_cut_texts_names_the_tasks_with_long_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    params = alone(write_study(tmp_path, lr=1e-3), SCRATCH_RUN)
    assert [*tables.cut_texts(made(with_finetune(params, max_tokens=200), []))] == []
    lines = [*tables.cut_texts(made(with_finetune(params, max_tokens=6), []))]
    assert len(lines) == 2 and all("finetune.max_tokens 6" in line for line in lines)
    assert all(any(f" {task} " in line for line in lines) for task in params.tasks)


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0.04, "0.0 s"), (12.4, "12 s"), (89, "89 s"), (90, "1.5 min"), (7200, "2.0 h")],
)
def test_duration_has_two_digits(seconds: float, written: str) -> None:
    assert tables.duration(seconds) == written
