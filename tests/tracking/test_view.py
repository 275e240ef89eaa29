import csv
import json
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import DatasetInput, Run

from stages.core import paths
from stages.core.params import Params, load
from stages.reporting.comparison.verdicts import SIGNIFICANT
from stages.tracking import records, store
from stages.tracking.tracker import Tracker
from stages.tracking.view import reconcile

PROJECT = Path(__file__).parents[2]
RUNS = ["encoder_mlm", "decoder_causal"]
SEEDS = [1, 2]
TABLES = ("contrasts", "costs", "trials")
SETTINGS = {"corpus": "all", "training": {"lr": 0.003}, "seed": 1}


@pytest.fixture(scope="module")
def fresh_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow database; making one takes seconds."""
    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def params(tmp_path: Path, fresh_store: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """A project folder, whose path has blanks, with the results of two runs and a baseline."""
    folder = tmp_path / "a study"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(fresh_store, store.DATABASE)
    write_corpus()
    for run in RUNS:
        write_pretraining(run, "a" * 8)  # equal: two entries may say the same
    for task in ("tag", "section"):
        write_task(task)
        write_evaluation(task)
    write_report("The encoder leads on `tag`.")
    return load(PROJECT / "studies" / "smoke.yaml")


@pytest.fixture
def another_store(fresh_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Its address; the variable that names it is restored after the test."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    return f"sqlite:///{shutil.copy(fresh_store, tmp_path / 'another.db')}"


def write_corpus() -> None:
    folder = Path("data/corpora/all")
    folder.mkdir(parents=True)
    counts = {"train": {"documents": 9}, "validation": {"documents": 1}}
    (folder / "corpus.json").write_text(json.dumps(counts | {"sha256": "c" * 64}))


def write_task(task: str) -> None:
    folder = Path("data/tasks", task, "examples")
    folder.mkdir(parents=True)
    (folder / "task.json").write_text(json.dumps({"num_examples": {"train": 1, "test": 1}}))
    for split in ("train", "test"):
        (folder / f"{split}.jsonl").write_text(json.dumps({"text": f"{task} {split}"}))
    (folder.parent / "test_labels.jsonl").write_text(json.dumps({"label": task}))


def write_pretraining(run: str, fingerprint: str) -> None:
    folder = Path("data/pretrained", run)
    folder.mkdir(parents=True, exist_ok=True)
    architecture, objective = run.split("_")
    about = {
        "architecture": architecture,
        "d_model": 64,
        "num_layers": 2,
        "corpus": "all",
        "settings": SETTINGS | {"objective": {"name": objective}},
        "fingerprint": fingerprint,
    }
    (folder / "run.json").write_text(json.dumps(about))
    (folder / "metrics.json").write_text(json.dumps({"num_params": 100, "validation_loss": 5.5}))
    write_table(
        Path("data/progress/history", f"{run}.csv"),
        [
            {"step": step, "tokens": 64 * step, "loss": 7 - step / 8, "lr": 0.003}
            | {"validation_loss": 5.5 if step == 8 else ""}
            for step in range(1, 9)
        ],
    )


def test_costs_are_those_that_were_measured_and_an_estimate_of_energy(params: Params) -> None:
    """Of 10 s and 3 s of one core, at 12 W; what only one seed measured is its own."""
    timings = paths.TIMINGS
    (timings / "pretrain").mkdir(parents=True)
    measured = {"wall_time_s": 6.0, "processor_time_s": 10.0, "gpu_energy_j": 0.0, "device": "cpu"}
    (timings / "pretrain/encoder_mlm.json").write_text(json.dumps(measured))
    key = {"method": "full", "label_budget": "50"}
    rows = [
        key | {"wall_time_s": 3, "processor_time_s": 2, "gpu_energy_j": 0, "latency_s": 0.004},
        key | {"wall_time_s": 5, "processor_time_s": 4, "gpu_energy_j": 0, "latency_s": ""},
    ]
    (timings / "finetune/tag").mkdir(parents=True)
    write_table(timings / "finetune/tag/encoder_mlm.csv", rows)
    found = {record.name: record.costs for record in records.recorded(params)}
    pretraining, trials = found["encoder_mlm"], found["encoder_mlm/tag/full/50"]
    assert pretraining.items() >= {"wall_time_s": 6.0, "energy_j_estimate": 120.0}.items()
    assert trials.items() >= {"wall_time_s": 4.0, "latency_s": 0.004}.items()
    assert trials["energy_j_estimate"] == 36
    assert trials["co2e_g_estimate"] == pytest.approx(36 / 3.6e6 * 473)
    assert found["decoder_causal"] == {}


def write_evaluation(task: str, shift: float = 0.0) -> None:
    """Scores of every run and baseline, by seed: 0.41 and 0.42."""
    amounts = dict.fromkeys(records.AMOUNTS, 1.0) | {"lr": 0.001}
    groups = [(run, "full") for run in RUNS] + [("tfidf", "classical")]
    keys = [
        {"run": run, "method": method, "task": task, "label_budget": "50", "finetune_seed": seed}
        for run, method in groups
        for seed in SEEDS
    ]
    scores = [{"metric": "macro_f1", "value": (40 + key["finetune_seed"]) / 100} for key in keys]
    others = {"other_metric": "accuracy", "other_value": 1.0}
    scores[0]["value"] += shift
    folder = Path("data/evaluated", task)
    write_table(
        folder / "trials.csv", [k | amounts | others | s for k, s in zip(keys, scores, strict=True)]
    )
    epochs = [
        key | {"epoch": epoch, "train_loss": 1 / epoch, "validation_metric": epoch / 10}
        for key in keys
        for epoch in (1, 2, 3)
    ]
    write_table(folder / "history.csv", epochs)


def write_report(comparison: str) -> None:
    Path("reports/figures").mkdir(parents=True, exist_ok=True)
    Path("reports/comparison.md").write_text(comparison)
    Path("reports/index.html").write_text("<html>")
    Path("reports/figures/comparison.svg").write_text("<svg/>")
    write_table(Path("reports/trials.csv"), [{"run": "encoder_mlm", "value": 0.5}])
    write_table(Path("reports/costs.csv"), [{"run": "encoder_mlm", "wall_time_s": 2.5}])
    effects = [("size", 0.01, SIGNIFICANT), ("none", "", "one seed")]
    columns = ("axis", "low", "verdict")
    rows = [dict(zip(columns, effect, strict=True)) for effect in effects]
    write_table(Path("reports/contrasts.csv"), rows)


def write_table(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def client() -> MlflowClient:
    return MlflowClient(store.address())


def shown(study: str = "smoke") -> list[Run]:
    experiment = client().get_experiment_by_name(study)
    assert experiment is not None
    return client().search_runs([experiment.experiment_id])


def current() -> dict[str, Run]:
    return {name_of(run): run for run in shown() if run.data.tags.get("current") == "true"}


def name_of(run: Run) -> str:
    assert run.info.run_name
    return run.info.run_name


def curve(run: Run, key: str) -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in client().get_metric_history(run.info.run_id, key)]


def datasets(run: Run) -> list[DatasetInput]:
    return run.inputs.dataset_inputs if run.inputs else []


def inputs(run: Run) -> list[tuple[str, str]]:
    """The name and the digest of each."""
    return [(each.dataset.name, each.dataset.digest) for each in datasets(run)]


def table(run: Run, name: str = "trials") -> list[dict]:
    """The rows of one of the comparison's tables."""
    place = f"tables/{name}.json"
    return client().load_table(run.info.experiment_id, place, [id_of(run)]).to_dict("records")


def everything() -> dict[str, object]:
    """All that MLflow shows, without its own ids and times."""
    names = {run.info.run_id: run.info.run_name for run in shown()}
    return {
        name_of(run): (
            run.info.status,
            run.data.params,
            {key: curve(run, key) for key in run.data.metrics},
            names.get(run.data.tags.get("mlflow.parentRunId", "")),
            run.data.tags["fingerprint"],
            run.data.tags["current"],
            inputs(run),
            [str(table(run, name)) for name in TABLES if name_of(run) == "comparison"],
            sorted(file.path for file in client().list_artifacts(run.info.run_id)),
        )
        for run in shown()
    }


def test_mlflow_shows_what_the_files_say(params: Params) -> None:
    assert reconcile(params)
    runs = current()
    assert Counter(run.data.tags["kind"] for run in runs.values()) == {
        "pretraining": 2,
        "baseline": 1,
        "trials": 3 * 2,
        "comparison": 1,
    }
    parent, child = runs["encoder_mlm"], runs["encoder_mlm/tag/full/50"]
    assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert curve(parent, "loss") == [(step, 7 - step / 8) for step in range(1, 9)]
    assert curve(parent, "validation_loss") == [(8, 5.5)]
    assert child.data.metrics["macro_f1"] == pytest.approx(0.415)
    assert curve(child, "macro_f1_by_seed") == [(1, 0.41), (2, 0.42)]
    assert curve(child, "validation_metric") == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert curve(child, "lr_by_seed") == [(1, 0.001), (2, 0.001)]
    assert child.data.params["finetune.training.lr"] == "0.001"
    assert parent.data.params["finetune.training.lr"] == "none"
    assert len({frozenset(run.data.params) for run in runs.values()}) == 1


def test_what_a_run_is_can_be_searched(params: Params) -> None:
    reconcile(params)
    of_run = {"study": "smoke", "architecture": "encoder", "size": "2x64"}
    of_run |= {"corpus": "all", "seed": "1"}
    of_trials = of_run | {"task": "tag", "method": "full"}
    of_baseline = {"study": "smoke", "architecture": "tfidf", "task": "tag", "method": "classical"}
    for name, tags in {
        "encoder_mlm": of_run,
        "encoder_mlm/tag/full/50": of_trials,
        "tfidf/tag/classical/50": of_baseline,
        "comparison": {"study": "smoke"},
    }.items():
        own = current()[name].data.tags
        assert {key: own[key] for key in own.keys() & of_trials.keys()} == tags, name
    query = "tags.architecture = 'encoder' and tags.task = 'tag' and tags.current = 'true'"
    (found,) = client().search_runs([current()["comparison"].info.experiment_id], query)
    assert name_of(found) == "encoder_mlm/tag/full/50"


def test_the_page_has_columns_of_scores_and_of_what_runs_are(params: Params) -> None:
    page = reconcile(params)
    assert page.endswith("&viewStateShareKey=study")
    experiment = client().get_experiment_by_name("smoke")
    assert experiment
    state = json.loads(experiment.tags["mlflow.sharedViewState.study"])
    found = client().search_runs([experiment.experiment_id], state["searchFilter"])
    assert len(found) == len(current())
    trials = current()["encoder_mlm/tag/full/50"].data
    known = [f"metrics.`{key}`" for key in trials.metrics] + [
        f"tags.`{key}`" for key in trials.tags
    ]
    assert "metrics.`macro_f1`" in state["selectedColumns"]
    assert set(state["selectedColumns"]) <= set(known)


def test_data_that_a_run_read_are_its_inputs(params: Params) -> None:
    reconcile(params)
    runs = current()
    (corpus,) = datasets(runs["encoder_mlm"])
    assert (corpus.dataset.name, corpus.dataset.digest) == ("all", "c" * 16)
    assert json.loads(corpus.dataset.source) == {"uri": "data/corpora/all"}
    assert json.loads(corpus.dataset.profile or "")["train"] == {"documents": 9}
    (task,) = datasets(runs["encoder_mlm/tag/full/50"])
    assert json.loads(task.dataset.source) == {"uri": "data/tasks/tag"}
    assert [(tag.key, tag.value) for tag in task.tags] == [("mlflow.data.context", "fine-tuning")]
    assert inputs(runs["tfidf/tag/classical/50"]) == inputs(runs["decoder_causal/tag/full/50"])
    assert inputs(runs["tfidf/tag/classical/50"]) != inputs(runs["tfidf/section/classical/50"])
    query = "dataset.name = 'all'"
    found = client().search_runs([runs["comparison"].info.experiment_id], query)
    assert {name_of(run) for run in found} == set(RUNS)


def test_data_that_were_not_restored_are_no_input_until_they_are(params: Params) -> None:
    shutil.move("data/corpora", "elsewhere")
    reconcile(params)
    assert inputs(current()["encoder_mlm"]) == []
    shutil.move("elsewhere", "data/corpora")
    reconcile(params)
    assert inputs(current()["encoder_mlm"]) == [("all", "c" * 16)]
    assert len(shown()) == len(current())


def test_an_amount_that_nobody_knows_is_no_point(params: Params) -> None:
    path = Path("data/evaluated/tag/trials.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    write_table(path, [row | {"pretrain_tokens": ""} for row in rows])
    assert reconcile(params)
    metrics = current()["encoder_mlm/tag/full/50"].data.metrics
    assert "pretrain_tokens" not in metrics and metrics["num_params"] == 1.0


def test_the_comparison_brings_its_tables_page_and_figures(params: Params) -> None:
    reconcile(params)
    run = current()["comparison"]
    assert run.data.tags["mlflow.note.content"] == "The encoder leads on `tag`."
    files = {file.path for file in client().list_artifacts(run.info.run_id)}
    assert {"comparison.md", "index.html", "trials.csv", "figures"} <= files
    assert table(run) == [{"run": "encoder_mlm", "value": 0.5}]
    significant, single = table(run, "contrasts")
    assert significant == {"axis": "size", "low": 0.01, "verdict": SIGNIFICANT}
    assert math.isnan(single.pop("low")) and single == {"axis": "none", "verdict": "one seed"}
    assert table(run, "costs") == [{"run": "encoder_mlm", "wall_time_s": 2.5}]


def test_nothing_is_logged_twice(params: Params) -> None:
    reconcile(params)
    before = everything()
    assert reconcile(params)
    assert everything() == before and len(shown()) == len(before)


def test_everything_comes_back_in_a_new_store(params: Params, another_store: str) -> None:
    reconcile(params)
    first = everything()
    os.environ["MLFLOW_TRACKING_URI"] = another_store
    reconcile(params)
    assert everything() == first


@pytest.mark.parametrize("step", ["set_terminated", "log_table", "set_tag"])
def test_an_interrupted_reconciliation_is_completed(
    params: Params, another_store: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Whatever it was about to do; of a table, ``log_table`` lists by ``set_tag`` what it wrote."""
    reconcile(params)
    whole = everything()
    os.environ["MLFLOW_TRACKING_URI"] = another_store
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(MlflowClient, step, interrupt)
        reconcile(params)
    assert "comparison" not in current()
    reconcile(params)
    assert everything() == whole


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_superseded_runs_are_kept_but_not_current(params: Params) -> None:
    reconcile(params)
    before = current()
    write_pretraining("encoder_mlm", "another")
    write_evaluation("tag", shift=0.1)
    reconcile(params)
    changed = {name for name, run in current().items() if run.info.run_id != id_of(before[name])}
    assert changed == {
        "encoder_mlm",
        "encoder_mlm/tag/full/50",
        "encoder_mlm/section/full/50",  # trained anew from it, with equal scores
    }
    assert len(shown()) == len(before) + 3

    write_pretraining("encoder_mlm", "a" * 8)  # as DVC's cache brings it back
    write_evaluation("tag")
    reconcile(params)
    assert {name: id_of(run) for name, run in current().items()} == {
        name: id_of(run) for name, run in before.items()
    }


def id_of(run: Run) -> str:
    return run.info.run_id


def test_a_run_that_params_no_longer_lists_is_not_current(params: Params) -> None:
    reconcile(params)
    fewer = {name: run for name, run in params.pretrain.items() if name != "decoder_causal"}
    reconcile(params.model_copy(update={"pretrain": fewer}))
    assert not {name for name in current() if name.startswith("decoder_causal")}


def test_an_unfinished_study_shows_what_there_is(params: Params) -> None:
    for folder in ("data/evaluated", "data/pretrained/decoder_causal", "reports"):
        shutil.rmtree(folder)
    assert reconcile(params)
    assert set(current()) == {"encoder_mlm"}


def tracker(fingerprint: str = "a" * 8, delay_s: float = 0) -> Tracker:
    return Tracker(
        "smoke",
        "encoder_mlm",
        params=SETTINGS | {"objective": {"name": "mlm"}},
        tags={"architecture": "encoder", "corpus": "all"},
        fingerprint=fingerprint,
        delay_s=delay_s,
    )


def test_a_training_is_mirrored_and_reconciled_into_the_same_run(params: Params) -> None:
    before = time.time()
    with tracker(delay_s=1) as live:
        for step in range(1, 9):
            live.log(step, {"loss": 7 - step / 8, "lr": 0.003})
        time.sleep(1.5)
    (run,) = shown()
    assert run.data.tags["study"] == "smoke" and run.data.tags["seed"] == "1"
    assert inputs(run) == [("all", "c" * 16)]
    assert before <= run.info.start_time / 1000 + 0.001 < before + 1  # not when it was first seen
    assert (run.info.status, run.data.tags["current"]) == ("FINISHED", "true")
    assert curve(run, "loss") == [(step, 7 - step / 8) for step in range(1, 9)]
    reconcile(params)
    reconciled = current()["encoder_mlm"]
    assert id_of(reconciled) == id_of(run)
    assert reconciled.info.end_time == run.info.end_time
    assert curve(run, "loss") == [(step, 7 - step / 8) for step in range(1, 9)]


def test_a_resumed_training_goes_on_in_the_same_run(params: Params) -> None:
    with pytest.raises(ArithmeticError), tracker() as live:
        live.log(1, {"loss": 3.0})
        raise ArithmeticError
    (run,) = shown()
    assert run.info.status == "FAILED" and "current" not in run.data.tags
    with tracker() as live:
        live.log(1, {"loss": 3.0})  # again: the checkpoint was older
        live.log(2, {"loss": 2.0})
    (run,) = shown()
    assert run.info.status == "FINISHED"
    assert curve(run, "loss") == [(1, 3.0), (2, 2.0)]


def test_a_short_training_leaves_mlflow_alone(params: Params) -> None:
    began = time.monotonic()
    with tracker(delay_s=60) as live:
        live.log(1, {"loss": 3.0})
    assert time.monotonic() - began < 1
    assert client().get_experiment_by_name("smoke") is None


def test_a_broken_store_stops_neither_training_nor_the_report(
    params: Params, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("broken.db").write_text("This is no database. " * 100)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{Path('broken.db').resolve()}")
    with tracker() as live:
        for step in range(3):
            live.log(step, {"loss": 1.0})
    assert not reconcile(params)
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 2 and all("file is not a database" in line for line in warnings)


def test_two_processes_may_create_the_store_at_once(params: Params) -> None:
    Path("mlflow.db").unlink()
    code = (
        "from stages.tracking.store import exclusive\n"
        "from stages.tracking.view import View\n"
        "with exclusive(): View('smoke')"
    )
    unmeasured = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE")}
    environment = unmeasured | {"PYTHONPATH": str(PROJECT)}
    both = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(2)]
    assert [process.wait(180) for process in both] == [0, 0]
    with closing(sqlite3.connect(store.DATABASE)) as database:
        names = database.execute("SELECT name FROM experiments").fetchall()
    assert sorted(names) == [("Default",), ("smoke",)]
