"""The units for workers, and their order."""

import pytest

from stages.core.keys import RunKey, TrialKey
from stages.core.params import Params
from stages.core.study_file import load
from stages.planning.stored import Stores
from stages.scheduling.units import units
from stages.scheduling.worker import Unit
from tests.smoke import SMOKE

RUN, OTHER, CHILD = "encoder_mlm", "encoder_scratch", "child"
NEEDS = {
    "record_inputs": [],
    "prepare_task@tag": [],
    f"pretrain@{RUN}": ["record_inputs"],
    f"pretrain@{OTHER}": ["record_inputs"],
    f"pretrain@{CHILD}": [f"pretrain@{RUN}", "record_inputs"],
    "finetune@tag": [
        f"pretrain@{RUN}",
        f"pretrain@{OTHER}",
        f"pretrain@{CHILD}",
        "prepare_task@tag",
    ],
    "evaluate@tag": ["finetune@tag"],
    "report": ["evaluate@tag"],
}
ALL = tuple(NEEDS)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder whose stores are empty."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def params() -> Params:
    """A study with a run of two seeds, a run from scratch, and a child of the first run's seed 1;
    a task, a method and two fine-tuning seeds."""
    study = load(SMOKE)
    first = study.runs[RUN].model_copy(update={"seeds": [1, 2]})
    child = study.runs[RUN].model_copy(update={"seeds": [1], "parent": RUN})
    scratch = study.runs[OTHER].model_copy(update={"seeds": [1]})
    methods = {"full": study.finetune.methods["full"]}
    settings = {"label_budgets": [50], "seeds": [1, 2], "methods": methods}
    return study.model_copy(
        update={
            "runs": {RUN: first, OTHER: scratch, CHILD: child},
            "tasks": {"tag": study.tasks["tag"]},
            "finetune": study.finetune.model_copy(update=settings),
        }
    )


def pending(*stages: str) -> dict[str, list[str]]:
    """Returns the stages, each with the pending stages that it needs."""
    return {stage: [n for n in NEEDS[stage] if n in stages] for stage in NEEDS if stage in stages}


@pytest.fixture
def work(params: Params) -> dict[str, Unit]:
    """All units by their names."""
    listed = units(params, pending(*ALL))
    names = {unit.name: unit for unit in listed}
    assert len(names) == len(listed)
    return names


def test_units_come_after_the_units_that_they_need(work: dict[str, Unit]) -> None:
    done = set[str]()
    for unit in work.values():
        assert done.issuperset(unit.needs)
        done.add(unit.name)
    assert {u.name for u in work.values() if not u.trials and not u.checkpoint} == {*ALL}


def test_priority_is_first_what_trials_need_and_then_the_longest_trials(params: Params) -> None:
    finetune = params.finetune.model_copy(update={"label_budgets": [50, 500]})
    work = units(params.model_copy(update={"finetune": finetune}), pending(*ALL))
    few, many = (
        {u.priority for u in work if u.trials and u.trials[0][0] == RUN and u.trials[0][4] == n}
        for n in ("50", "500")
    )
    assert 0 < max(few) < min(many) < min(u.priority for u in work if not u.trials)


def test_units_of_seeds_train_a_checkpoint_each(work: dict[str, Unit]) -> None:
    """A run with one seed, or without training, is left to its stage."""
    seeds = {name: unit for name, unit in work.items() if unit.checkpoint}
    assert {name: unit.checkpoint for name, unit in seeds.items()} == {
        f"pretrain_seed@{RUN}-{seed}": RunKey(RUN, seed) for seed in (1, 2)
    }
    assert all(unit.needs == ("record_inputs",) for unit in seeds.values())
    assert {*seeds} <= {*work[f"pretrain@{RUN}"].needs}


def test_units_have_the_planned_work_of_their_trainings(work: dict[str, Unit]) -> None:
    """Seeds and trials of a run have equal work; the stages that take their results have none."""
    first, second = (work[f"pretrain_seed@{RUN}-{seed}"].work for seed in (1, 2))
    assert first == second > 0 == work[f"pretrain@{RUN}"].work
    # A stage that trains its only seed has the seed's work; a run from scratch trains nothing.
    assert work[f"pretrain@{CHILD}"].work == pytest.approx(first)
    assert work[f"pretrain@{OTHER}"].work == work["report"].work == work["finetune@tag"].work == 0
    of_trials = {unit.work for unit in work.values() if unit.trials and unit.trials[0].run == RUN}
    assert len(of_trials) == 1 and 0 < of_trials.pop() < first


def test_units_of_trials_wait_for_one_run_and_the_task(work: dict[str, Unit]) -> None:
    trials = {name: unit for name, unit in work.items() if unit.trials}
    assert {key for unit in trials.values() for key in unit.trials} == {
        TrialKey(run, pretrain_seed, "tag", "full", "50", seed)
        for run, pretrain_seed in [(RUN, 1), (RUN, 2), (OTHER, 1), (CHILD, 1)]
        for seed in (1, 2)
    }
    stages = {run: f"pretrain@{run}" for run in (RUN, OTHER)}
    stages[CHILD] = f"pretrain@{CHILD}"
    for unit in trials.values():
        assert {*unit.needs} == {stages[unit.trials[0].run], "prepare_task@tag"}
    assert {*trials} <= {*work["finetune@tag"].needs}
    assert f"fine-tune {RUN} on tag, seed 2 and 1" in {unit.title for unit in trials.values()}


def test_units_leave_out_what_the_stores_have(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [TrialKey(RUN, p, "tag", "full", "50", seed) for p in (1, 2) for seed in (1, 2)]
    stored = dict.fromkeys(keys, 0.5)
    monkeypatch.setattr(Stores, "trials", lambda stores: stored)
    monkeypatch.setattr(Stores, "missing_seeds", lambda stores, name: [1, 2] if name == RUN else [])
    work = units(params, pending("finetune@tag", f"pretrain@{RUN}"))
    assert {unit.trials[0].run for unit in work if unit.trials} == {OTHER, CHILD}
    assert all(unit.needs == () for unit in work if unit.trials)
    [finetune] = [unit for unit in work if unit.name == "finetune@tag"]
    assert dict(finetune.stored) == stored  # for the leaderboard
    monkeypatch.setattr(Stores, "missing_seeds", lambda stores, name: [2])
    assert not any(u.checkpoint for u in units(params, pending(f"pretrain@{RUN}")))
