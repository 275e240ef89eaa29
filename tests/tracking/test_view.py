import csv
import getpass
import json
import math
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from stages.core.params import Params
from stages.reporting.comparison.verdicts import SIGNIFICANT
from stages.tracking import records, study, tables, trials
from stages.tracking.origin import of_process as origin_of_process
from stages.tracking.view import reconcile
from tests.tracking.tracked_study import (
    RUNS,
    client,
    current,
    curve,
    datasets,
    everything,
    id_of,
    inputs,
    name_of,
    shown,
    table,
    write_evaluation,
    write_pretraining,
    write_table,
)

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
CELL = "encoder_mlm full tag 50"


def test_mlflow_shows_what_the_files_say(params: Params) -> None:
    assert reconcile(params)
    runs = current()
    assert Counter(run.data.tags["kind"] for run in runs.values()) == {
        "group": 2,
        "pretraining": 2,
        "baseline": 1,
        "trials": 3 * 2,
        "trial": 3 * 2 * 2,
        "comparison": 1,
    }
    parent, cell = runs["encoder_mlm"], runs["encoder_mlm full tag 50"]
    pretraining, trial = runs["encoder_mlm pretraining p1"], runs["encoder_mlm full tag 50 p1 f2"]
    assert parents(cell, pretraining) == {id_of(parent)} and parents(trial) == {id_of(cell)}
    assert curve(pretraining, "train/loss") == [(step, 7 - step / 8) for step in range(1, 9)]
    assert curve(pretraining, "train/validation_loss") == [(8, 5.5)]
    assert curve(trial, "score") == [(0, 0.42)] and trial.data.metrics["train/best_epoch"] == 1.0
    assert curve(trial, "train/validation_metric") == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert curve(trial, "train/loss") == [(1, 2.0), (2, 1.0), (3, pytest.approx(2 / 3))]
    assert cell.data.params["finetune.training.lr"] == "0.001"
    assert parent.data.params["finetune.training.lr"] == "none"
    with_settings = [run for run in runs.values() if run.data.tags["kind"] != "trial"]
    assert len({frozenset(run.data.params) for run in with_settings}) == 1


def test_no_metric_has_a_seed_as_its_step(params: Params) -> None:
    """A point at step 0 is a number; the others are steps of pretraining, or epochs."""
    reconcile(params)
    for run in current().values():
        drawn = {key for key in run.data.metrics if [step for step, _ in curve(run, key)] != [0]}
        assert all(key.startswith("train/") for key in drawn), run.info.run_name
        assert not drawn or run.data.tags["kind"] in ("pretraining", "trial")


def test_parents_have_the_scores_and_intervals_of_the_report(params: Params) -> None:
    reconcile(params)
    answers, cell = (current()[name].data.metrics for name in ("encoder_mlm", CELL))
    printed = json.loads(Path("reports/metrics.json").read_text())["tag"]["encoder_mlm"]["full"]
    assert answers["score/tag/full/50"] == cell["score"] == printed["50"]["mean"]
    assert answers["score/tag/full/50_low"] == cell["score_low"] == printed["50"]["low"]
    assert answers["score/tag/full/50_high"] == cell["score_high"] == printed["50"]["high"]
    assert answers["gain_over_baseline/tag/full/50"] == cell["gain_over_baseline"]
    assert answers["gain_over_scratch/tag/full/50_low"] == cell["gain_over_scratch_low"] == 0.01
    baseline = current()["tfidf"].data.metrics
    assert "score/tag/classical/50" in baseline
    assert not any(key.endswith(("_low", "_high")) for key in baseline)  # the report has none
    assert not any(key.startswith("gain_over_baseline") for key in baseline)
    written = {"score", "train", "cost", "gain_over_baseline", "gain_over_scratch"}
    assert {key.split("/")[0] for key in {**answers, **baseline}} <= written


def test_a_run_says_where_it_comes_from(params: Params) -> None:
    for command in ("init -q", "add params.yaml", "-c user.name=a -c user.email=b commit -qm c"):
        Path("params.yaml").touch()
        subprocess.run(["git", *command.split()], check=True)
    origin_of_process.cache_clear()
    reconcile(params)
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout
    for run in current().values():
        assert run.data.tags["mlflow.source.git.commit"] == head.strip()
        assert (PROJECT / run.data.tags["mlflow.source.name"]).exists()
    assert current()["comparison"].data.tags["mlflow.user"] == getpass.getuser()
    origin_of_process.cache_clear()


def test_what_a_run_is_can_be_searched(params: Params) -> None:
    reconcile(params)
    of_run = {"study": "smoke", "run": "encoder_mlm", "architecture": "encoder", "size": "2x64"}
    of_run |= {"objective": "mlm", "corpus": "prose", "pretrained": "true"}
    of_trials = of_run | {"task": "tag", "method": "full", "label_budget": "50"}
    of_baseline = {"study": "smoke", "run": "tfidf", "architecture": "tfidf", "pretrained": "false"}
    of_baseline |= {"objective": "none", "corpus": "none"}
    of_its_trials = of_baseline | {"task": "tag", "method": "classical", "label_budget": "50"}
    seeds = {"pretrain_seed": "1", "finetune_seed": "2"}
    for name, tags in {
        "encoder_mlm": of_run,
        "encoder_mlm pretraining p1": of_run | {"pretrain_seed": "1"},
        CELL: of_trials,
        f"{CELL} p1 f2": of_trials | seeds,
        "tfidf": of_baseline,
        "tfidf classical tag 50": of_its_trials,
        "comparison": {"study": "smoke"},
    }.items():
        own = current()[name].data.tags
        assert {key: own[key] for key in own.keys() & (of_trials | seeds).keys()} == tags, name
    query = "tags.architecture = 'encoder' and tags.task = 'tag' and tags.finetune_seed = '2'"
    (found,) = client().search_runs([current()["comparison"].info.experiment_id], query)
    assert name_of(found) == f"{CELL} p1 f2"


def test_data_that_a_run_read_are_its_inputs(params: Params) -> None:
    reconcile(params)
    runs = current()
    (corpus,) = datasets(runs["encoder_mlm pretraining p1"])
    assert (corpus.dataset.name, corpus.dataset.digest) == ("all", "c" * 16)
    assert json.loads(corpus.dataset.source) == {"uri": "data/corpora/all"}
    assert json.loads(corpus.dataset.profile or "")["train"] == {"documents": 9}
    (task,) = datasets(runs[CELL])
    assert json.loads(task.dataset.source) == {"uri": "data/tasks/tag"}
    assert [(tag.key, tag.value) for tag in task.tags] == [("mlflow.data.context", "fine-tuning")]
    assert inputs(runs["tfidf classical tag 50"]) == inputs(runs["decoder_causal full tag 50"])
    assert inputs(runs["tfidf classical tag 50"]) != inputs(runs["tfidf classical section 50"])
    query = "dataset.name = 'all'"
    found = client().search_runs([runs["comparison"].info.experiment_id], query)
    assert {name_of(run) for run in found} == {f"{run} pretraining p1" for run in RUNS}


def test_data_that_were_not_restored_are_no_input_until_they_are(params: Params) -> None:
    shutil.move("data/corpora", "elsewhere")
    reconcile(params)
    assert inputs(current()["encoder_mlm pretraining p1"]) == []
    shutil.move("elsewhere", "data/corpora")
    reconcile(params)
    assert inputs(current()["encoder_mlm pretraining p1"]) == [("all", "c" * 16)]
    assert len(shown()) == len(current())


def test_an_amount_that_nobody_knows_is_no_point(params: Params) -> None:
    path = Path("data/evaluated/tag/trials.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    write_table(path, [row | {"pretrain_tokens": ""} for row in rows])
    assert reconcile(params)
    metrics = current()[CELL].data.metrics
    assert "cost/pretrain_tokens" not in metrics and metrics["cost/num_params"] == 1.0


def test_the_comparison_brings_its_tables_page_and_figures(params: Params) -> None:
    reconcile(params)
    run = current()["comparison"]
    assert run.data.tags["mlflow.note.content"].startswith("The encoder leads on `tag`.\n")
    files = {file.path for file in client().list_artifacts(run.info.run_id)}
    assert {"comparison.md", "index.html", "trials.csv", "figures"} <= files
    values = [row["value"] for row in table(run) if row["task"] == "tag"]
    assert values == pytest.approx(3 * [0.41, 0.42])
    significant, single = table(run, "tables/contrasts")
    assert (significant["low"], significant["verdict"]) == (0.01, SIGNIFICANT)
    assert math.isnan(single["low"]) and (single["axis"], single["verdict"]) == ("size", "one seed")
    assert table(run, "tables/costs") == [{"run": "encoder_mlm", "wall_time_s": 2.5}]


def test_a_group_of_trials_has_predictions_and_confusion(params: Params) -> None:
    """Those of the first seed, which is wrong, and the confusion of both."""
    reconcile(params)
    for cell, task in ((CELL, "tag"), ("tfidf classical section 50", "section")):
        run = current()[cell]
        expected = {"text": f"{task} test", "prediction": "other", "answer": task}
        expected |= {"probability": 0.75, "right": False}
        assert table(run, "predictions") == [expected]
        (row,) = table(run, "confusion")
        assert row == {tables.CORNER: task, "other": 1, task: 1}
    trial = current()[f"{CELL} p1 f1"]
    assert not client().list_artifacts(id_of(trial))


def test_tables_come_when_their_files_do(params: Params) -> None:
    """Which are not pulled yet."""
    shutil.move("data/finetuned", "elsewhere")
    reconcile(params)
    files = [file.path for file in client().list_artifacts(id_of(current()[CELL]))]
    assert files == ["confusion.json"]
    before = everything()
    shutil.move("elsewhere", "data/finetuned")
    reconcile(params)
    assert len(table(current()[CELL], "predictions")) == 1
    assert everything().keys() == before.keys() and len(shown()) == len(before)


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


def test_a_moved_project_shows_its_own_files(params: Params, tmp_path: Path) -> None:
    """The original is gone, and its name is the beginning of another folder's."""
    reconcile(params)
    before = everything()
    here = Path.cwd()
    moved = shutil.copytree(here, tmp_path / "a study, moved")
    shutil.rmtree(here)
    os.chdir(moved)
    reconcile(params)
    assert everything() == before and len(shown()) == len(before)
    run = current()["comparison"]
    assert run.info.artifact_uri and run.info.artifact_uri.startswith(moved.as_uri())
    kept = Path(client().download_artifacts(id_of(run), "comparison.md"))
    assert kept.read_text() == Path("reports/comparison.md").read_text()


def test_a_copy_without_the_files_gets_them_again(params: Params) -> None:
    reconcile(params)
    before = everything()
    shutil.rmtree("mlruns")
    reconcile(params)
    assert everything() == before


def test_a_database_of_an_older_form_is_brought_up_to_date(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        for module in (records, study, trials):
            older.setattr(module, "FORM", "1")
        reconcile(params)
    before = {id_of(run) for run in shown()}
    reconcile(params)
    assert not before & {id_of(run) for run in current().values()}
    assert len(shown()) == 2 * len(before) and len(current()) == len(before)


def test_a_study_of_many_trials_is_shown_by_groups(
    params: Params, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(study, "MAX_TRIALS", 11)
    reconcile(params)
    kinds = Counter(run.data.tags["kind"] for run in shown())
    assert kinds["trials"] == 6 and kinds["trial"] == 0
    assert "reports/trials.csv has all" in capsys.readouterr().err


def test_an_interrupted_reconciliation_is_completed(
    params: Params, another_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it was about to do, and again and again; of a table, ``log_table`` lists by
    ``set_tag`` what it wrote."""
    reconcile(params)
    whole = everything()
    os.environ["MLFLOW_TRACKING_URI"] = another_store
    for step in ("set_terminated", "log_artifacts", "log_table", "set_tag"):
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
    of_cells = [CELL, "encoder_mlm full section 50"]  # trained anew from it, with equal scores
    of_trials = [f"{cell} p1 f{seed}" for cell in of_cells for seed in (1, 2)]
    assert changed == {"encoder_mlm", "encoder_mlm pretraining p1", *of_cells, *of_trials}
    assert len(shown()) == len(before) + len(changed)
    assert "score_low" not in current()[CELL].data.metrics  # the report is older than these trials

    write_pretraining("encoder_mlm", "a" * 8)  # as DVC's cache brings it back
    write_evaluation("tag")
    reconcile(params)
    assert {name: id_of(run) for name, run in current().items()} == {
        name: id_of(run) for name, run in before.items()
    }


def test_a_run_that_params_no_longer_lists_is_not_current(params: Params) -> None:
    reconcile(params)
    fewer = {name: run for name, run in params.pretrain.items() if name != "decoder_causal"}
    reconcile(params.model_copy(update={"pretrain": fewer}))
    assert not {name for name in current() if name.startswith("decoder_causal")}


def test_an_unfinished_study_shows_what_there_is(params: Params) -> None:
    for folder in ("data/evaluated", "data/pretrained/decoder_causal", "reports"):
        shutil.rmtree(folder)
    assert reconcile(params)
    assert set(current()) == {"encoder_mlm", "encoder_mlm pretraining p1"}


def parents(*runs: Run) -> set[str]:
    return {run.data.tags["mlflow.parentRunId"] for run in runs}
