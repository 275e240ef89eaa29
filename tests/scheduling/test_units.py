"""The units for workers, and their order."""

from collections.abc import Mapping

import pytest

from stages.core.params import Params, Screen
from stages.scheduling import units as units_module
from stages.scheduling.unit import Unit
from stages.scheduling.units import units
from stages.trials.outcome import TrialKey
from tests.synthetic_study import raw_params

RUN, OTHER = "encoder_mlm", "encoder_scratch"


@pytest.fixture
def params() -> Params:
    raw = raw_params()
    raw["pretrain"] = {name: raw["pretrain"][name] for name in (RUN, OTHER)}
    raw["tasks"] = {"tag": raw["tasks"]["tag"]}
    raw["finetune"] |= {"label_budgets": [50], "seeds": [1, 2]}
    raw["finetune"]["methods"] = {"full": raw["finetune"]["methods"]["full"]}
    return Params(**raw)


def pending(*stages: str) -> dict[str, list[str]]:
    """Returns the stages, each after the one before, except for the two pretrainings."""
    needs = {
        "prepare_task@tag": [],
        f"pretrain@{RUN}": [],
        f"pretrain@{OTHER}": [],
        "finetune@tag": [f"pretrain@{RUN}", f"pretrain@{OTHER}", "prepare_task@tag"],
        "evaluate@tag": ["finetune@tag"],
        "report": ["evaluate@tag"],
    }
    return {stage: [n for n in needs[stage] if n in stages] for stage in needs if stage in stages}


ALL = ("prepare_task@tag", f"pretrain@{RUN}", f"pretrain@{OTHER}", "finetune@tag", "evaluate@tag")


def by_name(work: list[Unit]) -> dict[str, Unit]:
    names = {unit.name: unit for unit in work}
    assert len(names) == len(work)
    return names


def test_each_stands_behind_what_it_needs(params: Params) -> None:
    work = units(params, pending(*ALL, "report"))
    seen = set[str]()
    for unit in work:
        assert seen.issuperset(unit.needs)
        seen.add(unit.name)
    assert {unit.name for unit in work if unit.trials is None} == {*ALL, "report"}


def test_trials_wait_for_one_checkpoint_and_the_stage_for_its_trials(params: Params) -> None:
    work = by_name(units(params, pending(*ALL)))
    trials = {name: unit for name, unit in work.items() if unit.trials}
    assert len(trials) == 4  # two runs, two seeds
    for unit in trials.values():
        assert unit.trials
        assert set(unit.needs) == {f"pretrain@{unit.trials.run}", "prepare_task@tag"}
    assert {*trials} <= {*work["finetune@tag"].needs}


def test_trials_of_the_store_are_no_work(params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    def stored(params: Params, stages: object) -> Mapping[tuple[str, str], set[TrialKey]]:
        return {(RUN, "tag"): {TrialKey("full", "50", seed) for seed in (1, 2)}}

    monkeypatch.setattr(units_module, "stored_trials", stored)
    work = units(params, pending("finetune@tag"))
    assert {unit.trials.run for unit in work if unit.trials} == {OTHER}
    assert all(unit.needs == () for unit in work if unit.trials)


def test_without_fine_tuning_there_are_no_trials(params: Params) -> None:
    work = units(params, pending(f"pretrain@{RUN}", "report"))
    assert [unit.name for unit in work] == [f"pretrain@{RUN}", "report"]


def test_a_study_that_screens_leaves_the_choice_of_runs_to_the_stage(params: Params) -> None:
    screen = Screen(by="knn", keep=1)
    finetune = params.finetune.model_copy(update={"screen": screen})
    work = units(params.model_copy(update={"finetune": finetune}), pending(*ALL))
    assert {unit.trials.run for unit in work if unit.trials} == {OTHER}
