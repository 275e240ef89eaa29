"""A small study, as its stages leave it, and what MLflow shows of it."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from stages.core.artifacts import write_json
from stages.core.keys import CheckpointKey
from stages.evaluation import records
from stages.findings.results import Results
from stages.tracking import store
from tests.synthetic_study import RUNS, drawn, raw_params, saved

MODELS = {"encoder_mlm": "mlm", "decoder_causal": "causal"}
SETTINGS = {"corpus": "all", "training": {"lr": 0.003}, "seed": 1}
EFFECTS = ("axis", "level_a", "level_b", "metric", "second_axis")
EFFECTS += ("effect", "low", "high", "p_value")
CHECKPOINT, PRETRAINING = CheckpointKey("encoder_mlm", 1), "pretrain encoder_mlm, seed 1"
TRIAL = "encoder_mlm on tag, full, 200 labels, seeds 1 and 2"


@pytest.fixture(scope="session")
def fresh_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow database; making one takes seconds."""
    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def study(tmp_path: Path, fresh_store: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    """A project folder, whose path has blanks, with the results of two models and three baselines
    on two tasks. Validation losses diverged in the third epoch."""
    folder = tmp_path / "a study"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(fresh_store, store.DATABASE)
    raw = raw_params({name: RUNS[name] for name in MODELS}, seeds=[1, 2])
    del raw["tasks"]["type"], raw["finetune"]["methods"]["linear_probe"]
    results = drawn(raw)
    diverged = [
        replace(c, validation_loss=float("nan")) if c.epoch == 3 else c for c in results.curves
    ]
    for model in MODELS:
        write_checkpoint(model, "a" * 8)  # equal fingerprints are allowed
    write_report(
        "The encoder leads.", ("objective", "causal", "mlm", "f1", "", 0.04, 0.01, 0.07, 0.002)
    )
    return saved(replace(results, curves=diverged))


def write_checkpoint(model: str, fingerprint: str) -> None:
    folder = Path("data/pretrained", model, "1")
    folder.mkdir(parents=True, exist_ok=True)
    settings = SETTINGS | {"objective": {"name": MODELS[model]}}
    about = {"architecture": model.partition("_")[0], "d_model": 64, "num_layers": 2}
    write_json(folder / "run.json", about | {"settings": settings, "fingerprint": fingerprint})
    write_json(folder / "metrics.json", {"num_params": 100, "lineage_flops": None})


def write_report(text: str, *effects: tuple[object, ...]) -> None:
    Path("reports/figures").mkdir(parents=True, exist_ok=True)
    Path("reports/index.html").write_text(f"<html>{text}")
    Path("reports/figures/comparison.svg").write_text("<svg/>")
    rows = [dict(zip(EFFECTS, effect, strict=True)) for effect in effects]
    records.write_table(Path("reports/effects.csv"), EFFECTS, rows)


def client() -> MlflowClient:
    return MlflowClient(store.address())


def shown(study: str = "synthetic") -> list[Run]:
    experiment = client().get_experiment_by_name(study)
    assert experiment is not None
    return client().search_runs([experiment.experiment_id])


def current() -> dict[str, Run]:
    """Returns the runs of the present results by their names."""
    runs = [run for run in shown() if run.data.tags.get("current") == "true"]
    return {str(run.info.run_name): run for run in runs}


def curve(run: Run, key: str) -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in client().get_metric_history(run.info.run_id, key)]
