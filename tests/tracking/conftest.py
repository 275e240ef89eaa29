import shutil
from pathlib import Path

import pytest
from mlflow import MlflowClient

from stages.core.params import Params
from stages.core.study_file import load
from stages.tracking import store
from tests.tracking.tracked_study import (
    RUNS,
    write_corpus,
    write_evaluation,
    write_pretraining,
    write_report,
    write_task,
)

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
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
        write_pretraining(run, "a" * 8)  # equal fingerprints are allowed
    for task in ("tag", "section"):
        write_task(task)
        write_evaluation(task)
    write_report("The encoder leads on `tag`.")
    return load(PROJECT / "studies" / "smoke.yaml")


@pytest.fixture
def another_store(fresh_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a second store; its variable is restored after the test."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    return f"sqlite:///{shutil.copy(fresh_store, tmp_path / 'another.db')}"
