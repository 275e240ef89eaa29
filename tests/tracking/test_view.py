import csv
import json
import math
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from mlflow import MlflowClient

from stages.core.params import Params
from stages.reporting.comparison.verdicts import SIGNIFICANT
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
