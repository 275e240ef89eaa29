"""The units for workers, and their order."""

import pytest

from stages.core.keys import CheckpointKey, TrialKey
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
    first = study.models[RUN].model_copy(update={"seeds": [1, 2]})
    child = study.models[RUN].model_copy(update={"seeds": [1], "parent": RUN})
    scratch = study.models[OTHER].model_copy(update={"seeds": [1]})
    methods = {"full": study.finetune.methods["full"]}
    settings = {"label_budgets": [50], "seeds": [1, 2], "methods": methods}
    return study.model_copy(
        update={
            "models": {RUN: first, OTHER: scratch, CHILD: child},
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


def test_priority_is_probes_and_stages_then_pretraining_then_the_longest_trials(
    params: Params,
) -> None:
    methods = load(SMOKE).finetune.methods
    update = {"label_budgets": [50, 500], "methods": methods}
    finetune = params.finetune.model_copy(update=update)
    work = units(params.model_copy(update={"finetune": finetune}), pending(*ALL))
    of_run = [u for u in work if u.trials and u.trials[0].model == RUN]
    few, many = (
        {u.priority for u in of_run if u.trials[0].label_budget == n and not u.is_solved}
        for n in ("50", "500")
    )
    seeds = {u.priority for u in work if u.checkpoint}
    assert 0 < max(few) < min(many) < min(seeds)
    assert max(seeds) < min(u.priority for u in work if u.is_solved or u.name == "prepare_task@tag")


def test_units_of_seeds_train_a_checkpoint_each(work: dict[str, Unit]) -> None:
    """A run with one seed, or without training, is left to its stage. Seeds have equal work; the
    stages that take results have none."""
    seeds = {name: unit for name, unit in work.items() if unit.checkpoint}
    expected = {f"pretrain_seed@{RUN}-{seed}": CheckpointKey(RUN, seed) for seed in (1, 2)}
    assert {name: unit.checkpoint for name, unit in seeds.items()} == expected
    assert all(unit.needs == ("record_inputs",) for unit in seeds.values())
    assert {*seeds} <= {*work[f"pretrain@{RUN}"].needs}
    first, second = (unit.work for unit in seeds.values())
    assert first == second == pytest.approx(work[f"pretrain@{CHILD}"].work) and first > 0
    for name in (f"pretrain@{RUN}", f"pretrain@{OTHER}", "report", "finetune@tag"):
        assert work[name].work == 0


def test_units_of_trials_wait_for_one_run_and_the_task(work: dict[str, Unit]) -> None:
    trials = {name: unit for name, unit in work.items() if unit.trials}
    assert {key for unit in trials.values() for key in unit.trials} == {
        TrialKey(run, pretrain_seed, "tag", "full", "50", seed)
        for run, pretrain_seed in [(RUN, 1), (RUN, 2), (OTHER, 1), (CHILD, 1)]
        for seed in (1, 2)
    }
    for unit in trials.values():
        assert {*unit.needs} == {f"pretrain@{unit.trials[0].model}", "prepare_task@tag"}
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
    assert {unit.trials[0].model for unit in work if unit.trials} == {OTHER, CHILD}
    assert all(unit.needs == () for unit in work if unit.trials)
    [finetune] = [unit for unit in work if unit.name == "finetune@tag"]
    assert dict(finetune.stored) == stored  # for the leaderboard
