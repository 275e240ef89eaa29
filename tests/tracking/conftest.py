import shutil
from pathlib import Path

import pytest
from mlflow import MlflowClient

from stages.core.params import Params
from stages.core.study_file import load
from stages.tracking import store
from tests.tracking.tracked_study import RUNS, write_evaluation, write_pretraining, write_report

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def fresh_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow database; making one takes seconds."""
    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def params(tmp_path: Path, fresh_store: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """A project folder, whose path has blanks, with the results of two models and a baseline."""
    folder = tmp_path / "a study"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(fresh_store, store.DATABASE)
    for run in RUNS:
        write_pretraining(run, "a" * 8)  # equal fingerprints are allowed
    for task in ("tag", "section"):
        write_evaluation(task)
    write_report(
        "The encoder leads.", ("objective", "causal", "mlm", "f1", "", 0.04, 0.01, 0.07, 0.002)
    )
    return load(PROJECT / "studies" / "smoke.yaml")
