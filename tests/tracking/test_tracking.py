"""What MLflow shows of a study: the records of its files, during a training and after a report."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient

from stages.core.params import Params
from stages.findings.models import Progress, TriedStep
from stages.findings.results import Results
from stages.tracking import store
from stages.tracking.records import RunRecord, recorded
from stages.tracking.tracker import Tracker
from stages.tracking.view import reconcile
from tests.synthetic_study import saved, with_trials
from tests.tracking.conftest import (
    CHECKPOINT,
    PRETRAINING,
    SETTINGS,
    TRIAL,
    client,
    current,
    curve,
    shown,
    write_checkpoint,
    write_report,
)

NUM_RUNS = 2 + 2 * 4 * 2 + 1  # pretrainings, trials of two models and two baselines, the report


def named(params: Params) -> dict[str, RunRecord]:
    return {record.name: record for record in recorded(params)}


def points(record: RunRecord, key: str) -> list[tuple[int, float]]:
    return [(step, value) for name, value, step in record.points if name == key]


def losses(study: Results) -> list[tuple[int, float]]:
    return [(step.step, step.loss) for step in study.progress[CHECKPOINT].history]


def test_recorded_curves_have_names_by_objective_rate_and_task(study: Results) -> None:
    """Epochs that diverged are left out. Costs are measured, and 0 or unknown ones left out."""
    history = study.progress[CHECKPOINT].history
    tried = Progress(history, [TriedStep(**vars(history[0]), rate=0.1, kept=0)])
    saved(replace(study, progress={**study.progress, CHECKPOINT: tried}))
    runs = named(study.params)
    masked, causal, trial = runs[PRETRAINING], runs["pretrain decoder_causal, seed 1"], runs[TRIAL]
    assert points(masked, "loss/mlm") == losses(study) != points(causal, "loss/causal")
    validated = [(s.step, s.validation_loss) for s in history if s.validation_loss is not None]
    assert points(masked, "validation_loss/mlm") == validated
    assert points(masked, "loss/mlm at 0.1") == losses(study)[:1]
    shared = {key for key, *_ in masked.points} & {key for key, *_ in causal.points}
    assert shared == {"lr", "pretrain/num_params"} and len(points(masked, "lr")) == len(history)
    (scored,) = (
        t for t in study.trials if (t.model, t.task, t.finetune_seed) == ("encoder_mlm", "tag", 2)
    )
    assert points(trial, "score/tag") == [(0, scored.value)]
    assert points(trial, "accuracy/tag") == [(0, scored.other_value)]
    assert points(trial, "train_loss/tag") == [(epoch, 2 / epoch) for epoch in range(1, 7)]
    assert [epoch for epoch, _ in points(trial, "validation_loss/tag")] == [1, 2, 4, 5, 6]
    assert points(trial, "trial/best_epoch") == [(0, 5.0)]
    assert masked.costs["cost/wall_time_s"] == masked.duration_s == 61.5
    assert trial.costs["cost/wall_time_s"] == 2.5 and "cost/latency_s" not in trial.costs
    assert trial.tags["hardware"] == "A processor & more" and trial.tags["threads"] == "1"


def test_recorded_effects_are_named_after_their_axis(study: Results) -> None:
    write_report(
        "",
        ("size", "2x64", "4x128", "f1", "", 0.02, "", "", ""),  # one seed has no interval
        ("size", "2x64", "4x128", "", "corpus", 0.5, "", "", ""),  # an interaction
        ("corpus", "all", "docs", "f1", "", 0.01, -0.01, 0.03, 0.4),
        ("corpus", "all", "more, twice", "f1", "", 0.05, 0.02, 0.08, 0.01),
    )
    effects = {name: value for name, value, _ in named(study.params)["synthetic"].points}
    assert effects.pop("effect/size") == 0.02
    assert effects["effect/corpus/docs less all"] == 0.01
    assert effects["effect/corpus/more_ twice less all_low"] == 0.02
    assert len(effects) == 8


# After a report ------------------------------------------------------------------------------


@pytest.mark.slow
def test_reconcile_shows_what_the_files_say_and_nothing_twice(study: Results) -> None:
    def everything() -> list[object]:
        runs = [(run.info.to_proto(), run.data.params, run.data.tags) for run in shown()]
        return [runs, [[curve(run, key) for key in run.data.metrics] for run in shown()]]

    shown_pages, runs = reconcile(study.params), current()
    assert shown_pages.keys() == {"Models", "Trials", "The report"}
    assert len(runs) == NUM_RUNS
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    pretraining, trial, report = runs[PRETRAINING], runs[TRIAL], runs["synthetic"]
    assert shown_pages["The report"].endswith(f"/{report.info.run_id}/artifacts")
    assert trial.data.tags["mlflow.parentRunId"] == pretraining.info.run_id
    assert {"architecture": "encoder", "task": "tag"}.items() <= trial.data.tags.items()
    assert curve(pretraining, "loss/mlm") == losses(study)
    assert len(curve(trial, "score/tag")) == 1
    assert trial.data.params["finetune.training.lr"] == "0.001"
    effects = {"": 0.04, "_low": 0.01, "_high": 0.07, "_p": 0.002}
    assert report.data.metrics == {f"effect/objective{end}": v for end, v in effects.items()}
    files = {file.path for file in client().list_artifacts(report.info.run_id)}
    assert files == {"index.html", "figures", "effects.csv"}
    before = everything()
    reconcile(study.params)
    assert everything() == before


@pytest.mark.slow
def test_reconcile_retires_what_is_superseded_and_continues_after_an_interruption(
    study: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = MlflowClient.log_batch, iter(range(100))

    def fails_once(*arguments: object, **settings: object) -> object:
        if next(calls) == 5:
            raise OSError("no connection")
        return real(*arguments, **settings)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "log_batch", fails_once)
        assert reconcile(study.params) == {}
        assert reconcile(study.params)
    assert len(current()) == len(shown()) == NUM_RUNS
    changed = ("encoder_mlm", "tag", 1)
    saved(
        with_trials(
            study,
            lambda t: {"value": 0.46} if (t.model, t.task, t.finetune_seed) == changed else {},
        )
    )
    write_checkpoint("decoder_causal", "b" * 8)
    write_report("Another answer.")
    reconcile(study.params)
    runs = current()
    # The trial, the checkpoint with its trials, and the report are new.
    assert len(runs) == NUM_RUNS and len(shown()) == NUM_RUNS + 1 + (1 + 4) + 1
    assert runs[TRIAL.replace("and 2", "and 1")].data.metrics["score/tag"] == 0.46


@pytest.mark.slow
def test_reconcile_only_warns_of_a_broken_store_and_without_a_password(
    study: Results, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("broken.db").write_text("This is no database. " * 100)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{Path('broken.db').resolve()}")
    assert reconcile(study.params) == {}
    (warning,) = capsys.readouterr().err.splitlines()
    assert warning.startswith("warning: MLflow") and "file is not a database" in warning
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://someone:s3cret@127.0.0.1:9/x")
    with store.errors_as_warnings():
        raise OSError("no answer of http://someone:s3cret@127.0.0.1:9/x/api")
    said = "(http://127.0.0.1:9/x): no answer of http://127.0.0.1:9/x/api"
    assert capsys.readouterr().err == f"warning: MLflow {said}\n"


# During a training ---------------------------------------------------------------------------


def tracker(delay_s: float = 0) -> Tracker:
    return Tracker(
        "synthetic",
        CHECKPOINT,
        params=SETTINGS | {"objective": {"name": "mlm"}},
        tags={"architecture": "encoder", "corpus": "all"},
        fingerprint="a" * 8,
        delay_s=delay_s,
    )


@pytest.mark.slow
def test_tracker_mirrors_a_training_into_the_run_that_is_reconciled(study: Results) -> None:
    before = time.time()
    with tracker(delay_s=1) as live:
        for step, loss in losses(study):
            live.log(step, {"loss": loss, "lr": 0.003})
        time.sleep(1.5)
    (run,) = shown()
    assert run.data.tags["study"] == "synthetic" and run.data.tags["pretrain_seed"] == "1"
    assert before <= run.info.start_time / 1000 + 0.001 < before + 1  # not when it was first seen
    assert (run.info.status, run.data.tags["current"]) == ("FINISHED", "true")
    assert curve(run, "loss/mlm") == losses(study)
    reconcile(study.params)
    reconciled = current()[PRETRAINING]
    assert reconciled.info.run_id == run.info.run_id
    assert reconciled.info.end_time == run.info.end_time
    assert curve(run, "loss/mlm") == losses(study)


@pytest.mark.slow
def test_tracker_goes_on_in_the_same_run_after_an_interruption(study: Results) -> None:
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
    assert curve(run, "loss/mlm") == [(1, 3.0), (2, 2.0)]
