"""The files of a small study, as its stages leave them, and what MLflow shows of them."""

import json
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run

from stages.evaluation import records
from stages.tracking import store

RUNS = {"encoder_mlm": "mlm", "decoder_causal": "causal"}
SETTINGS = {"corpus": "all", "training": {"lr": 0.003}, "seed": 1}
EFFECTS = ("axis", "level_a", "level_b", "metric", "second_axis")
EFFECTS += ("effect", "low", "high", "p_value")


def write_pretraining(run: str, fingerprint: str) -> None:
    """Writes a checkpoint and the curve of its training: the losses 7 - step / 8 of 8 steps."""
    folder = Path("data/pretrained", run, "1")
    folder.mkdir(parents=True, exist_ok=True)
    about = {
        "architecture": run.partition("_")[0],
        "d_model": 64,
        "num_layers": 2,
        "settings": SETTINGS | {"objective": {"name": RUNS[run]}},
        "fingerprint": fingerprint,
    }
    (folder / "run.json").write_text(json.dumps(about))
    (folder / "metrics.json").write_text(json.dumps({"num_params": 100, "lineage_flops": None}))
    write_table(
        Path("data/progress/history", run, "1.csv"),
        [
            {"step": step, "tokens": 64 * step, "loss": 7 - step / 8, "lr": 0.003}
            | {"validation_loss": 5.5 if step == 8 else ""}
            for step in range(1, 9)
        ],
    )


def write_evaluation(task: str, shift: float = 0.0) -> None:
    """Writes the trials of both models and of a baseline, with the scores 0.41 and 0.42 by seed."""
    groups = [(run, "full") for run in RUNS] + [("tfidf", "classical")]
    keys: list[dict[str, Any]] = [
        {"run": run, "pretrain_seed": 1, "task": task, "method": method, "label_budget": "50"}
        | {"finetune_seed": seed}
        for run, method in groups
        for seed in (1, 2)
    ]
    about = {"architecture": "encoder", "metric": "macro_f1", "other_metric": "accuracy"}
    rows: list[dict[str, Any]] = [
        key
        | about
        | {"value": (40 + key["finetune_seed"]) / 100, "other_value": 1.0, "lr": 0.001}
        | {"best_epoch": int(key["method"] == "full"), "last_train_loss": ""}
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


def write_timings() -> None:
    """Writes the costs of a pretraining and of a trial."""
    machine = {"hardware": "AMD EPYC", "threads": 2}
    pretraining = Path("data/timings/pretrain/encoder_mlm/1.json")
    pretraining.parent.mkdir(parents=True)
    pretraining.write_text(json.dumps(machine | {"wall_time_s": 6.0, "device": "cpu"}))
    key = {"run": "encoder_mlm", "pretrain_seed": 1, "task": "tag", "method": "full"}
    key |= {"label_budget": "50", "finetune_seed": 2}
    row = key | machine | {"wall_time_s": 5, "latency_s": ""}
    write_table(Path("data/timings/finetune/tag/encoder_mlm.csv"), [row])


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
    return {name_of(run): run for run in shown() if run.data.tags.get("current") == "true"}


def name_of(run: Run) -> str:
    assert run.info.run_name
    return run.info.run_name


def curve(run: Run, key: str) -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in client().get_metric_history(run.info.run_id, key)]


def everything() -> dict[str, object]:
    """Returns all that MLflow shows, without its own ids and times."""
    return {
        name_of(run): (
            run.info.status,
            run.data.params,
            {key: curve(run, key) for key in run.data.metrics},
            {k: v for k, v in run.data.tags.items() if k != "mlflow.parentRunId"},
            sorted(file.path for file in client().list_artifacts(run.info.run_id)),
        )
        for run in shown()
    }
