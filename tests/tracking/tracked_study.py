"""The files of a small study, as its stages leave them, and what MLflow shows of them."""

from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run

from stages.core.artifacts import write_json
from stages.evaluation import records
from stages.tracking import store

RUNS = {"encoder_mlm": "mlm", "decoder_causal": "causal"}
SETTINGS = {"corpus": "all", "training": {"lr": 0.003}, "seed": 1}
EFFECTS = ("axis", "level_a", "level_b", "metric", "second_axis")
EFFECTS += ("effect", "low", "high", "p_value")
LOSSES = [(step, 7 - step / 8) for step in range(1, 9)]
TRIAL = "encoder_mlm on tag, full, 50 labels, seeds 1 and 2"


def write_pretraining(run: str, fingerprint: str) -> None:
    """Writes a checkpoint and the curve of its training."""
    folder = Path("data/pretrained", run, "1")
    folder.mkdir(parents=True, exist_ok=True)
    settings = SETTINGS | {"objective": {"name": RUNS[run]}}
    about = {"architecture": run.partition("_")[0], "d_model": 64, "num_layers": 2}
    write_json(folder / "run.json", about | {"settings": settings, "fingerprint": fingerprint})
    write_json(folder / "metrics.json", {"num_params": 100, "lineage_flops": None})
    steps = [
        {"step": step, "tokens": 64 * step, "loss": loss, "lr": 0.003}
        | {"validation_loss": 5.5 if step == 8 else ""}
        for step, loss in LOSSES
    ]
    write_table(Path("data/progress/history", run, "1.csv"), steps)


def write_evaluation(task: str, shift: float = 0.0) -> None:
    """Writes the trials of both models and of a baseline, with the scores 0.41 and 0.42 by seed."""
    groups = [(run, "full") for run in RUNS] + [("tfidf", "classical")]
    about = {"pretrain_seed": 1, "task": task, "label_budget": "50"}
    keys: list[dict[str, Any]] = [
        about | {"model": run, "method": method, "finetune_seed": seed}
        for run, method in groups
        for seed in (1, 2)
    ]
    scored: dict[str, Any] = {
        "architecture": "encoder",
        "metric": "macro_f1",
        "other_metric": "accuracy",
    }
    scored |= {"other_value": 1.0, "lr": 0.001, "last_train_loss": ""}
    rows: list[dict[str, Any]] = [
        {**key, **scored, "best_epoch": int(key["method"] == "full")}
        | {"value": (40 + key["finetune_seed"]) / 100}
        for key in keys
    ]
    rows[0]["value"] += shift
    write_table(Path("data/evaluated", task, "trials.csv"), rows)
    epochs = [
        key
        | {"epoch": epoch, "train_loss": key["finetune_seed"] / epoch}
        | {"validation_metric": epoch / 10, "validation_loss": "nan" if epoch == 3 else 2 / epoch}
        for key in keys
        if key["method"] == "full"
        for epoch in (1, 2, 3)
    ]
    write_table(Path("data/evaluated", task, "history.csv"), epochs)


def write_report(text: str, *effects: tuple[object, ...]) -> None:
    Path("reports/figures").mkdir(parents=True, exist_ok=True)
    Path("reports/index.html").write_text(f"<html>{text}")
    Path("reports/figures/comparison.svg").write_text("<svg/>")
    rows = [dict(zip(EFFECTS, effect, strict=True)) for effect in effects]
    records.write_table(Path("reports/effects.csv"), EFFECTS, rows)


def write_table(path: Path, rows: list[dict]) -> None:
    records.write_table(path, rows[0], rows)


def client() -> MlflowClient:
    return MlflowClient(store.address())


def shown(study: str = "smoke") -> list[Run]:
    experiment = client().get_experiment_by_name(study)
    assert experiment is not None
    return client().search_runs([experiment.experiment_id])


def current() -> dict[str, Run]:
    """Returns the runs of the present results by their names."""
    runs = [run for run in shown() if run.data.tags.get("current") == "true"]
    return {str(run.info.run_name): run for run in runs}


def curve(run: Run, key: str) -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in client().get_metric_history(run.info.run_id, key)]
