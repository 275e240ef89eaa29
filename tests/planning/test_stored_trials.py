"""Trials that the store has take nothing in a plan."""

from pathlib import Path

import pytest

from stages import finetune, pretrain
from stages.core.params import Params
from stages.planning.finetuning_costs import Finetuning, finetunings
from stages.planning.speed import _earlier_finetunings
from stages.planning.stored_trials import stored_trials
from stages.trials.outcome import TrialKey
from tests.small_study import SCRATCH, write_study

STAGES = ["finetune@section"]


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """A study of one run, whose probes with the first seed were made."""
    monkeypatch.chdir(tmp_path)
    params = write_study(tmp_path, lr=1e-2)
    params = params.model_copy(update={"pretrain": {SCRATCH: params.pretrain[SCRATCH]}})
    pretrain.main(params, SCRATCH)
    params = tuned(params, label_budgets=[16, 32], seeds=[1])
    probe = {"linear_probe": params.finetune.methods["linear_probe"]}
    finetune.main(tuned(params, methods=probe), "section")
    return params


def tuned(params: Params, **settings: object) -> Params:
    return params.model_copy(update={"finetune": params.finetune.model_copy(update=settings)})


def cost(params: Params, method: str, *, stages: list[str] = STAGES) -> Finetuning:
    found = finetunings(params, stored=stored_trials(params, stages))
    (one,) = (each for each in found if (each.task, each.method) == ("section", method))
    return one


@pytest.mark.slow
def test_what_is_there_takes_nothing_and_the_rest_as_much_as_alone(params: Params) -> None:
    keys = {TrialKey("linear_probe", str(budget), 1) for budget in (16, 32)}
    assert stored_trials(params, STAGES) == {(SCRATCH, "section"): keys}
    done = cost(params, "linear_probe")
    assert (done.num_stored, done.num_trials, done.flops, done.tokens) == (2, 2, 0, 0)
    assert cost(params, "full").num_stored == 0
    more = cost(tuned(params, seeds=[1, 2]), "linear_probe")
    alone = cost(tuned(params, seeds=[2]), "linear_probe")
    assert (more.num_stored, more.num_trials, alone.num_stored) == (2, 4, 0)
    assert more.flops == alone.flops and alone.flops
    assert more.prediction_flops == alone.prediction_flops


@pytest.mark.slow
def test_nothing_is_taken_for_a_checkpoint_or_a_task_that_is_made_again(params: Params) -> None:
    for before in (f"pretrain@{SCRATCH}", "prepare_task@section"):
        assert stored_trials(params, [before, *STAGES]) == {}
    assert stored_trials(params, []) == {}


@pytest.mark.slow
def test_the_speed_of_earlier_trials_does_not_depend_on_what_is_stored(params: Params) -> None:
    """It is that of all their work, whoever has it."""
    place = "section", SCRATCH, "linear_probe"
    without = _earlier_finetunings(finetunings(params)).speed(place)
    with_all = finetunings(params, stored=stored_trials(params, STAGES))
    assert without and _earlier_finetunings(with_all).speed(place) == without
