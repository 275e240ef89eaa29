"""Agreement of estimates with scores: planted rankings and the cost of a choice by estimate."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import weightedtau

from stages.core.keys import RunKey
from stages.evaluation.estimates import ESTIMATES, LAYERS
from stages.findings.estimates import (
    ALL,
    COMPARABLE,
    MEAN_RANK,
    NUM_PARAMS,
    PRETRAIN_FLOPS,
    VALIDATION_LOSS,
    Agreement,
    agreements,
    mean_ranks,
    negative_losses,
    pretraining_flops,
)
from stages.findings.pretraining_progress import validation_losses
from stages.findings.results import Results
from stages.reporting.page.sections import appendix
from stages.reporting.words.files import COLUMNS, agreement_rows, estimate_rows
from tests.synthetic_study import METRICS, RUNS

SCRATCH = {"encoder_scratch", "decoder_scratch"}
A, B, C = (RunKey(name, 1) for name in "abc")


@pytest.fixture(scope="module")
def agreement_of(results: Results) -> dict[tuple[str, ...], Agreement]:
    every = agreements(results, LAYERS, results.scores.label_budgets)
    return {(a.task, a.method, a.estimate, a.layers, a.runs): a for a in every}


def scores(results: Results, task: str, method: str) -> dict[str, float]:
    """The mean of each run, from the trials."""
    trials = [t for t in results.trials if (t.task, t.method) == (task, method)]
    return {run: float(np.mean([t.value for t in trials if t.run == run])) for run in RUNS}


def test_an_estimate_that_knows_the_truth_agrees_and_its_opposite_does_not(agreement_of) -> None:
    for task in METRICS:
        informed, opposite = (
            agreement_of[task, "full", estimate, "last", "all"] for estimate in ("h_score", "logme")
        )
        assert informed.tau > 0.5 and informed.low > 0
        assert opposite.tau < -0.5 and opposite.high < 0


def test_tau_is_that_of_scipy_on_the_means_of_the_trials(results: Results, agreement_of) -> None:
    for task, method in (("tag", "full"), ("type", "linear_probe")):
        of_run = scores(results, task, method)
        values = {
            r.run: r.value for r in results.estimates.records[task] if r.estimate == "h_score"
        }
        for runs, names in (
            ("all", [*RUNS]),
            ("pretrained", [r for r in RUNS if r not in SCRATCH]),
        ):
            pair = [values[run] for run in names], [of_run[run] for run in names]
            agreement = agreement_of[task, method, "h_score", "mean", runs]
            assert agreement.tau == pytest.approx(weightedtau(*pair)[0])
            assert agreement.num_checkpoints == agreement.num_runs == len(names)


def test_an_estimate_that_says_nothing_has_no_tau_and_chooses_blindly(agreement_of) -> None:
    agreement = agreement_of["tag", "full", "knn", "last", "all"]
    assert agreement.tau is agreement.low is agreement.high is None
    assert {key.run for key in agreement.chosen} == {*RUNS}
    assert agreement.lost == pytest.approx(agreement.lost_at_random)


def test_a_choice_loses_what_the_chosen_run_is_worse(results: Results, agreement_of) -> None:
    of_run = scores(results, "type", "full")
    best = max(of_run, key=lambda run: of_run[run])
    for estimate, chosen in (("h_score", "encoder_mlm"), ("logme", "decoder_scratch")):
        agreement = agreement_of["type", "full", estimate, "last", "all"]
        assert (agreement.best, agreement.chosen) == (RunKey(best, 1), (RunKey(chosen, 1),))
        assert agreement.lost == pytest.approx(of_run[best] - of_run[chosen])
    expected = of_run[best] - np.mean([*of_run.values()])
    assert agreement.lost_at_random == pytest.approx(expected)


def test_what_is_saved_is_all_but_the_choice_and_the_estimates_own_states(
    results: Results, agreement_of
) -> None:
    agreement = agreement_of["type", "full", "h_score", "last", "all"]
    spent = {run: 0 for run in RUNS}
    for trial in results.trials:
        if (trial.task, trial.method) == ("type", "full") and trial.run in spent:
            spent[trial.run] += trial.finetune_flops
    states = len(RUNS) * 40_000_000_000
    expected = 1 - (spent[agreement.chosen[0].run] + states) / sum(spent.values())
    assert agreement.saved_flops == pytest.approx(expected)
    assert 0 < agreement.saved_flops < 1 - 1 / len(RUNS)


def test_an_estimate_that_is_not_defined_is_left_out_with_its_reason(
    results: Results, agreement_of
) -> None:
    assert not any(key[0] == "section" and key[2] == "knn" for key in agreement_of)
    (described,) = [part for part in appendix(results) if part.heading == "Estimates"]
    assert any("`section`" in note and "a reason" in note for note in described.notes)
    rows = [row for row in estimate_rows(results) if row["reason"]]
    assert {row["task"] for row in rows} == {"section"} and len(rows) == len(RUNS) * len(LAYERS)
    assert all(row["value"] == "" for row in rows)


def test_heuristics_are_compared_with_scores_as_estimates_are(
    results: Results, agreement_of
) -> None:
    for task in METRICS:
        of_run = scores(results, task, "full")
        trial = {t.run: t for t in results.trials if t.task == task}
        for heuristic, values in (
            (NUM_PARAMS, [trial[run].num_params for run in RUNS]),
            (PRETRAIN_FLOPS, [trial[run].lineage_flops for run in RUNS]),
        ):
            agreement = agreement_of[task, "full", heuristic, "", ALL]
            assert agreement.tau == pytest.approx(weightedtau(values, [*of_run.values()])[0])
            assert agreement.saved_flops is not None
        ranked = agreement_of[task, "full", MEAN_RANK, "", ALL]
        assert ranked.tau > 0.5  # the effects are equal on all tasks
        assert ranked.saved_flops is None


def test_a_loss_is_compared_within_one_objective_and_text_alone(agreement_of) -> None:
    losses = {key: value for key, value in agreement_of.items() if key[2] == VALIDATION_LOSS}
    assert {runs for *_, runs in losses} == {COMPARABLE}
    for agreement in losses.values():
        assert {key.run for key in agreement.checkpoints} == {"encoder_mlm", "encoder_small"}
        assert agreement.tau is None  # two checkpoints are too few


def test_one_task_has_no_rank_on_other_tasks(results: Results) -> None:
    one = replace(results.scores, tasks=["tag"])
    alone = replace(results)
    alone.__dict__["scores"] = one
    all_agreements = agreements(alone, ["last"], one.label_budgets)
    assert all_agreements and MEAN_RANK not in {agreement.estimate for agreement in all_agreements}


def test_seeds_of_a_run_are_checkpoints_of_their_own(five_seeds: Results) -> None:
    every = agreements(five_seeds, ["last"], five_seeds.scores.label_budgets)
    assert {agreement.runs for agreement in every} == {"all", "pretrained"}
    for agreement in every:
        runs = 4 if agreement.runs == "all" else 3
        assert (agreement.num_runs, agreement.num_checkpoints) == (runs, 5 * runs)
        assert (agreement.low is None) == (runs < 4 or agreement.tau is None)


def test_every_number_is_in_the_tables(results: Results) -> None:
    rows = [*estimate_rows(results)]
    assert len(rows) == len(METRICS) * len(RUNS) * len(ESTIMATES) * len(LAYERS)
    assert all(row.keys() == set(COLUMNS["estimates"]) for row in rows)
    rows = [*agreement_rows(results)]
    assert all(row.keys() == set(COLUMNS["agreement"]) for row in rows)


def test_a_study_without_an_estimate_has_no_appendix(results: Results) -> None:
    nothing = {
        task: [replace(record, value=None, reason="none") for record in records]
        for task, records in results.estimates.records.items()
    }
    without = replace(results.estimates, records=nothing)
    parts = appendix(replace(results, estimates=without))
    assert "Estimates" not in [part.heading for part in parts]


def test_mean_ranks_are_highest_for_the_best_and_shared_by_ties() -> None:
    assert mean_ranks([{A: 0.1, B: 0.2, C: 0.3}]) == {A: 1, B: 2, C: 3}
    assert mean_ranks([{A: 0.1, B: 0.2, C: 0.2}]) == {A: 1, B: 2.5, C: 2.5}
    assert mean_ranks([{A: 0.1, B: 0.2}, {A: 0.3, B: 0.2}]) == {A: 1.5, B: 1.5}


def test_mean_ranks_are_those_of_checkpoints_that_all_tasks_have() -> None:
    assert mean_ranks([{A: 0.1, B: 0.2, C: 0.3}, {A: 5.0, C: 4.0}]) == {A: 1.5, C: 1.5}
    assert mean_ranks([{A: 0.1}, {B: 0.2}]) == {}


def test_pretraining_flops_leave_out_what_is_unknown(results: Results) -> None:
    (trial, *_) = results.trials
    trials = {A: [trial], B: [replace(trial, lineage_flops=None)]}
    assert pretraining_flops(trials) == {A: trial.lineage_flops}


def test_negative_losses_are_those_of_one_objective_and_text(results: Results) -> None:
    (losses,) = negative_losses(results.groups, results.progress)
    assert {key.run for key in losses} == {"encoder_mlm", "encoder_small"}
    for key, loss in losses.items():
        assert loss == pytest.approx(-validation_losses(results.progress[key])[-1])


def test_negative_losses_need_equal_settings_of_the_objective(results: Results) -> None:
    groups = [
        replace(
            group,
            entry=group.entry.model_copy(update={"objective": {"name": "mlm", "mask_prob": prob}}),
        )
        for group, prob in zip(results.groups, [0.15, 0.3], strict=False)
    ]
    assert not [*negative_losses(groups, results.progress)]
