"""The units for workers and their order; what is shown of them: time left, and the scores so
far."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from stages.core.artifacts import write_json
from stages.core.keys import CheckpointKey, TrialKey
from stages.core.params import Params
from stages.core.study_file import load
from stages.evaluation.records import write_table
from stages.planning.stored import Stores
from stages.scheduling.progress import Progress
from stages.scheduling.units import units
from stages.scheduling.worker import Result, Unit
from tests.smoke import SMOKE

MODEL, SCRATCH, CHILD = "encoder_mlm", "encoder_scratch", "child"
TRAINED = [f"pretrain@{name}" for name in (MODEL, SCRATCH, CHILD)]
NEEDS = {
    "record_inputs": [],
    "prepare_task@tag": [],
    TRAINED[0]: ["record_inputs"],
    TRAINED[1]: ["record_inputs"],
    TRAINED[2]: [TRAINED[0], "record_inputs"],
    "finetune@tag": [*TRAINED, "prepare_task@tag"],
    "evaluate@tag": ["finetune@tag"],
    "report": ["evaluate@tag"],
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder whose stores are empty."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def params() -> Params:
    """A study with a model of two seeds, a model from scratch, and a child of the first model's
    seed 1; a task, a method, two label budgets and two fine-tuning seeds."""
    study = load(SMOKE)
    first, scratch = study.models[MODEL], study.models[SCRATCH]
    models = {
        MODEL: first.model_copy(update={"seeds": [1, 2]}),
        SCRATCH: scratch.model_copy(update={"seeds": [1]}),
        CHILD: first.model_copy(update={"seeds": [1], "parent": MODEL}),
    }
    methods = {"full": study.finetune.methods["full"]}
    settings = {"label_budgets": [50, 500], "seeds": [1, 2], "methods": methods}
    finetune = study.finetune.model_copy(update=settings)
    tasks = {"tag": study.tasks["tag"]}
    return study.model_copy(update={"models": models, "tasks": tasks, "finetune": finetune})


def made(params: Params, *stages: str) -> dict[str, Unit]:
    """Returns the units of these stages by their names."""
    pending = {
        stage: [n for n in NEEDS[stage] if n in stages] for stage in NEEDS if stage in stages
    }
    listed = units(params, pending)
    names = {unit.name: unit for unit in listed}
    assert len(names) == len(listed)
    return names


def test_units_come_after_what_they_need_and_the_longest_trials_before_others(params) -> None:
    """Probes and stages come first, then pretraining."""
    methods = load(SMOKE).finetune.methods
    finetune = params.finetune.model_copy(update={"methods": methods})
    work, done = made(params.model_copy(update={"finetune": finetune}), *NEEDS), set[str]()
    for unit in work.values():
        assert done.issuperset(unit.needs)
        done.add(unit.name)
    assert {u.name for u in work.values() if not u.trials and not u.checkpoint} == {*NEEDS}
    of_model = [u for u in work.values() if u.trials and u.trials[0].model == MODEL]
    few, many = (
        {u.priority for u in of_model if u.trials[0].label_budget == n and not u.is_solved}
        for n in ("50", "500")
    )
    seeds = {u.priority for u in work.values() if u.checkpoint}
    first = {u.priority for u in work.values() if u.is_solved or u.name == "prepare_task@tag"}
    assert 0 < max(few) < min(many) < min(seeds) <= max(seeds) < min(first)


def test_units_train_a_checkpoint_each_or_the_trials_of_one(params: Params) -> None:
    """A model with one seed, or without training, is left to its stage. Seeds have equal work; the
    stages that take results have none. Trials wait for their model and the task."""
    work = made(params, *NEEDS)
    seeds = {name: unit for name, unit in work.items() if unit.checkpoint}
    expected = {f"pretrain_seed@{MODEL}-{seed}": CheckpointKey(MODEL, seed) for seed in (1, 2)}
    assert {name: unit.checkpoint for name, unit in seeds.items()} == expected
    assert all(unit.needs == ("record_inputs",) for unit in seeds.values())
    assert {*seeds} <= {*work[TRAINED[0]].needs}
    first, second = (unit.work for unit in seeds.values())
    assert first == second == pytest.approx(work[TRAINED[2]].work) and first > 0
    for name in (TRAINED[0], TRAINED[1], "report", "finetune@tag"):
        assert work[name].work == 0
    trials = {name: unit for name, unit in work.items() if unit.trials}
    assert {key for unit in trials.values() for key in unit.trials} == {
        TrialKey(model, pretrain_seed, "tag", "full", budget, seed)
        for model, pretrain_seed in [(MODEL, 1), (MODEL, 2), (SCRATCH, 1), (CHILD, 1)]
        for budget in ("50", "500")
        for seed in (1, 2)
    }
    for unit in trials.values():
        assert {*unit.needs} == {f"pretrain@{unit.trials[0].model}", "prepare_task@tag"}
    assert {*trials} <= {*work["finetune@tag"].needs}
    title = f"fine-tune {MODEL} on tag, 50 labels, seed 2 and 1"
    assert title in {unit.title for unit in trials.values()}


def test_units_leave_out_what_the_stores_have(params: Params, monkeypatch) -> None:
    keys = [
        TrialKey(MODEL, p, "tag", "full", b, s)
        for p in (1, 2)
        for b in ("50", "500")
        for s in (1, 2)
    ]
    stored = dict.fromkeys(keys, 0.5)
    monkeypatch.setattr(Stores, "trials", lambda stores: stored)
    monkeypatch.setattr(
        Stores, "missing_seeds", lambda stores, name: [1, 2] if name == MODEL else []
    )
    work = made(params, "finetune@tag", TRAINED[0])
    assert {unit.trials[0].model for unit in work.values() if unit.trials} == {SCRATCH, CHILD}
    assert all(unit.needs == () for unit in work.values() if unit.trials)
    assert dict(work["finetune@tag"].stored) == stored  # for the leaderboard


# Progress ------------------------------------------------------------------------------------


def lines(listed: list[Unit], *ended: Result, terminal: bool = False) -> list[str]:
    """Returns what is printed while the first units end with these results, and the next starts."""
    console = Console(
        file=(output := io.StringIO()), width=80, force_terminal=terminal, _environ={}
    )
    with Progress(listed, console) as progress:
        for unit, result in zip(listed, ended, strict=False):
            progress.started(unit.name)
            progress.ended(unit, result)
        for unit in listed[len(ended) :][:1]:
            progress.started(unit.name)
            progress.refresh()
    return [line for line in output.getvalue().splitlines() if line]


def done_in(*seconds: float) -> list[Result]:
    return [Result(seconds=of_unit) for of_unit in seconds]


def test_progress_has_a_line_for_each_unit_that_has_ended_and_shows_what_runs() -> None:
    listed = [Unit(name, (), f"{name}, a unit", work=4) for name in "abc"]
    assert lines(listed, *done_in(61.4), Result("failed", 2)) == [
        "1/3    1:01  a, a unit  (about 2 minutes left)",
        "2/3    0:02  b, a unit  failed  (about a minute left)",
    ]
    assert any(listed[0].title in line for line in lines(listed, terminal=True))


TRIALS = (TrialKey("model", 1, "tag", "full", "50", 1),)


@pytest.mark.parametrize(
    ("listed", "seconds", "left"),
    [
        ([1, 10, 0], [60], "(about 10 minutes left)"),
        ([0, 10, 1], [60], "unit"),  # a unit without planned work says nothing
        ([1] * 21, [60, 60], "(about 19 minutes left)"),
        ([1] * 21, [60, 60, 180], "(about 18 minutes left)"),  # one slow unit changes nothing
        ([1] * 21, [60], "unit"),  # too little has ended
        ([100, 1, 1, 1, 1, 1], [100, 60], "(about 4 minutes left)"),
        ([100, 1, 1, 1, 1, 1, 0], [100, 60], "(more than 4 minutes left)"),  # one is unknown
    ],
)
def test_time_left_is_the_work_that_is_left_at_the_pace_of_what_has_ended(
    listed: list[float], seconds: list[float], left: str
) -> None:
    """The first unit is a pretraining; trials have a pace of their own."""
    some = [
        Unit(str(i), (), "unit", work=work, trials=TRIALS if i and listed[0] == 100 else ())
        for i, work in enumerate(listed)
    ]
    assert lines(some, *done_in(*seconds))[-1].endswith(left)


def test_leaderboard_fills_with_baselines_and_models() -> None:
    """A model has its mean over seeds, its best method, and the most labels."""
    about = Path("data/tasks/tag/examples/task.json")
    about.parent.mkdir(parents=True)
    write_json(about, {"metric": "macro_f1"})
    baseline = TrialKey("tfidf", 1, "tag", "classical", "50", 1)
    rows = [baseline._asdict() | {"validation_score": 0.5}]
    write_table(Path("data/baselines/tag/trials.csv"), rows[0], rows)
    keys = [TrialKey("minilm", seed, "tag", "full", "50", 1) for seed in (1, 2)]
    few, worse = keys[0]._replace(label_budget="10"), keys[0]._replace(method="probe")
    listed = [
        Unit("fit_baseline@tag", (), "fit baseline tag"),
        *(Unit(f"trials@{key.pretrain_seed}", (), "fine-tune", trials=(key,)) for key in keys),
        Unit("finetune@tag", (), "finetune tag", stored=((few, 0.9), (worse, 0.1))),
    ]
    scores = zip(keys, (0.6, 0.7), strict=True)
    results = [*done_in(1), *(Result("", 1, (score,)) for score in scores)]
    before, after = lines(listed, results[0]), lines(listed, *results)
    for some in (before, lines(listed[1:])):  # the baselines are fitted now, or were before
        assert [line.split() for line in some[-2:]] == [["tfidf", "50.0"], ["minilm", "10.0"]]
    assert [line.split() for line in after[-2:]] == [["minilm", "65.0"], ["tfidf", "50.0"]]
    assert after[2].endswith("fine-tune: 70.0 on validation rows")
