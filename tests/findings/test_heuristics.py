"""Heuristics that rank checkpoints, on small cases."""

from dataclasses import replace

import pytest

from stages.core.keys import RunKey
from stages.findings.heuristics import mean_ranks, negative_losses, pretraining_flops, sizes
from stages.findings.pretraining_progress import validation_losses
from stages.findings.results import Results

A, B, C = (RunKey(name, 1) for name in "abc")


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
    assert sizes(trials) == {A: trial.num_params, B: trial.num_params}


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
