"""A plan of a study that screens: between the costliest runs that it may keep and the cheapest."""

from dataclasses import replace

import pytest

from stages.core.params import Params
from stages.planning.estimate import Estimate
from stages.planning.finetuning_costs import Finetuning
from stages.planning.screening import screened
from stages.planning.tables import notes
from tests.synthetic_study import RUNS, raw_params, repeated

SCRATCH = {"encoder_scratch", "decoder_scratch"}


def study(keep: int | None, seeds: int = 1) -> Params:
    raw = raw_params(repeated(RUNS, seeds))
    if keep is not None:
        raw["finetune"]["screen"] = {"by": "knn", "keep": keep}
    return Params(**raw)


def costs(params: Params) -> list[Finetuning]:
    """The later in params.yaml, the dearer; on ``type`` the other way round."""
    return [
        Finetuning(
            run, task, "full", "encoder", 5, flops=i, seconds=float(-i if task == "type" else i)
        )
        for task in params.tasks
        for i, run in enumerate(params.pretrain)
    ]


def all_pending(params: Params) -> list[Finetuning]:
    return [replace(cost, pending=True) for cost in costs(params)]


def runs_on(found: list[Finetuning], task: str) -> set[str]:
    return {cost.run for cost in found if cost.task == task}


def test_without_a_screen_there_is_one_number() -> None:
    params = study(None)
    assert screened(params, params.pretrain, all_pending(params)) is None


def test_the_most_is_of_the_dearest_and_the_least_of_the_cheapest() -> None:
    params = study(2)
    found = screened(params, params.pretrain, all_pending(params))
    assert found is not None
    dear, cheap = {"encoder_deep_learning", "encoder_scientific"}, {"encoder_mlm", "decoder_causal"}
    for task in params.tasks:
        most, least = (cheap, dear) if task == "type" else (dear, cheap)
        assert runs_on(found.most, task) == most | SCRATCH
        assert runs_on(found.least, task) == least | SCRATCH


def test_a_run_of_unknown_cost_is_the_dearest() -> None:
    params = study(1)
    every = [
        replace(c, seconds=None, flops=None) if c.run == "encoder_small" else c
        for c in all_pending(params)
    ]
    found = screened(params, params.pretrain, every)
    assert found is not None
    assert {run for task in params.tasks for run in runs_on(found.most, task)} == {
        "encoder_small",
        *SCRATCH,
    }


@pytest.mark.parametrize("keep", [5, 9])
def test_a_screen_that_keeps_all_saves_nothing(keep: int) -> None:
    params = study(keep, seeds=2)
    every = all_pending(params)
    found = screened(params, params.pretrain, every)
    assert found is not None and found.most == found.least == every


def test_pretraining_seeds_of_a_run_are_kept_together() -> None:
    params = study(1, seeds=3)
    found = screened(params, params.pretrain, all_pending(params))
    assert found is not None
    kept = {run for run in runs_on(found.most, "tag") if "scratch" not in run}
    assert kept == {f"encoder_deep_learning{seed}" for seed in ("", "_2", "_3")}


def noted(params: Params, finetune: list[Finetuning], least: list[Finetuning] | None) -> str:
    stages = [f"finetune@{task}" for task in params.tasks]
    return "\n".join(notes(Estimate(params, stages, [], finetune, [], 1, least)))


def test_the_plan_says_the_most_and_the_least() -> None:
    params = study(2)
    found = screened(params, params.pretrain, all_pending(params))
    assert found is not None
    said = noted(params, found.most, found.least)
    assert "finetune.screen" in said and f"at most {3 * 4 * 5} trials" in said
