"""What MLflow shows of a study after ``reconcile``."""

import os
import subprocess
from pathlib import Path

import pytest

from stages.core.params import Params
from stages.tracking import store
from stages.tracking.view import reconcile
from tests import warm_python
from tests.tracking.tracked_study import (
    LOSSES,
    TRIAL,
    client,
    current,
    curve,
    shown,
    write_evaluation,
    write_pretraining,
    write_report,
)

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]


def test_reconcile_shows_what_the_files_say(params: Params) -> None:
    assert reconcile(params).keys() == {"Models", "Trials", "The report"}
    runs = current()
    assert len(runs) == 2 + 2 * 3 * 2 + 1
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    pretraining, trial = runs["pretrain encoder_mlm, seed 1"], runs[TRIAL]
    assert trial.data.tags["mlflow.parentRunId"] == pretraining.info.run_id
    assert {"architecture": "encoder", "task": "tag"}.items() <= trial.data.tags.items()
    assert curve(pretraining, "loss/mlm") == LOSSES
    assert curve(trial, "score/tag") == [(0, 0.42)]
    assert trial.data.params["finetune.training.lr"] == "0.001"
    report = runs["smoke"]
    assert report.data.metrics == {
        "effect/objective": 0.04,
        "effect/objective_low": 0.01,
        "effect/objective_high": 0.07,
        "effect/objective_p": 0.002,
    }
    files = {file.path for file in client().list_artifacts(report.info.run_id)}
    assert files == {"index.html", "figures", "effects.csv"}


def test_reconcile_logs_nothing_twice(params: Params) -> None:
    def everything() -> list[object]:
        runs = [(run.info.to_proto(), run.data.params, run.data.tags) for run in shown()]
        return [runs, [[curve(run, key) for key in run.data.metrics] for run in shown()]]

    reconcile(params)
    before = everything()
    reconcile(params)
    assert everything() == before


def test_reconcile_retires_what_is_superseded(params: Params) -> None:
    reconcile(params)
    write_evaluation("tag", shift=0.05)
    write_pretraining("decoder_causal", "b" * 8)
    write_report("Another answer.")
    reconcile(params)
    runs = current()
    assert len(runs) == 15 and len(shown()) == 15 + 1 + 1 + 4 + 1  # its trials follow a checkpoint
    score = runs["encoder_mlm on tag, full, 50 labels, seeds 1 and 1"].data.metrics["score/tag"]
    assert score == pytest.approx(0.46)


def test_reconcile_continues_after_an_interruption(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    real, calls = MlflowClient.log_batch, iter(range(100))

    def fails_once(*arguments: object, **settings: object) -> object:
        if next(calls) == 5:
            raise OSError("no connection")
        return real(*arguments, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(MlflowClient, "log_batch", fails_once)
    assert reconcile(params) == {}
    assert reconcile(params)
    assert len(current()) == len(shown()) == 15


def test_reconcile_only_warns_of_a_broken_store(
    params: Params, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("broken.db").write_text("This is no database. " * 100)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{Path('broken.db').resolve()}")
    assert reconcile(params) == {}
    (warning,) = capsys.readouterr().err.splitlines()
    assert warning.startswith("warning: MLflow") and "file is not a database" in warning


def test_exclusive_lets_two_processes_create_the_store_at_once(params: Params) -> None:
    Path("mlflow.db").unlink()
    code = (
        "from stages.tracking.store import exclusive\n"
        "from stages.tracking.view import View\n"
        "with exclusive(): View('smoke')"
    )
    unmeasured = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE")}
    environment = unmeasured | {"PYTHONPATH": str(PROJECT)}
    python = warm_python.commands() / "python"
    both = [subprocess.Popen([python, "-c", code], env=environment) for _ in range(2)]
    assert [process.wait(180) for process in both] == [0, 0]
    names = [experiment.name for experiment in client().search_experiments()]
    assert sorted(names) == ["Default", "smoke"]


def test_warnings_have_no_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://someone:s3cret@127.0.0.1:9/x")
    with store.errors_as_warnings():
        raise OSError("no answer of http://someone:s3cret@127.0.0.1:9/x/api")
    printed = capsys.readouterr().err
    assert printed == (
        "warning: MLflow (http://127.0.0.1:9/x): no answer of http://127.0.0.1:9/x/api\n"
    )
