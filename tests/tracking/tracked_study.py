"""The files of a small study, as its stages leave them, and what MLflow shows of them."""

import json
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run

from stages.evaluation import records
from stages.findings.verdicts import Verdict
from stages.tracking import store, trials

RUNS = ["encoder_mlm", "decoder_causal"]
SEEDS = [1, 2]
KEYS = ("run", "task", "method", "label_budget", "pretrain_seed", "finetune_seed")
SETTINGS = {"corpus": "all", "training": {"lr": 0.003}, "seed": 1}


def write_corpus() -> None:
    folder = Path("data/corpora/all")
    folder.mkdir(parents=True)
    counts = {"train": {"documents": 9}, "validation": {"documents": 1}}
    (folder / "corpus.json").write_text(json.dumps(counts | {"sha256": "c" * 64}))


def write_task(task: str) -> None:
    folder = Path("data/tasks", task, "examples")
    folder.mkdir(parents=True)
    about = {"kind": "classification", "num_examples": {"train": 1, "test": 1}}
    (folder / "task.json").write_text(json.dumps(about))
    for split in ("train", "validation", "test"):
        row = {"id": "row", "text": f"{task} {split}", "label": task}
        (folder / f"{split}.jsonl").write_text(json.dumps(row))
    (folder.parent / "test_labels.jsonl").write_text(json.dumps({"id": "row", "label": task}))


def write_pretraining(run: str, fingerprint: str) -> None:
    folder = Path("data/pretrained", run, "1")
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
        Path("data/progress/history", run, "1.csv"),
        [
            {"step": step, "tokens": 64 * step, "loss": 7 - step / 8, "lr": 0.003}
            | {"validation_loss": 5.5 if step == 8 else ""}
            for step in range(1, 9)
        ],
    )


def write_evaluation(task: str, shift: float = 0.0) -> None:
    """Scores of every run and baseline, by seed: 0.41 and 0.42."""
    amounts = dict.fromkeys([*trials.AMOUNTS, *trials.TRAINED.values()], 1.0)
    groups = [(run, "full") for run in RUNS] + [("tfidf", "classical")]
    keys: list[dict[str, Any]] = [
        {"run": run, "method": method, "task": task, "label_budget": "50"}
        | {"pretrain_seed": 1, "finetune_seed": seed}
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
        key
        | {"lr": 1.0, "epoch": epoch, "train_loss": key["finetune_seed"] / epoch}
        | {"validation_metric": epoch / 10, "validation_loss": 2 / epoch}
        for key in keys
        for epoch in (1, 2, 3)
    ]
    write_table(folder / "history.csv", epochs)
    for run in RUNS:
        folder = Path("data/finetuned", task, run, "weights")
        folder.mkdir(parents=True, exist_ok=True)
        for seed in SEEDS:
            kept = folder / f"full-50-1-{seed}.safetensors"
            kept.unlink(missing_ok=True)  # as DVC and the stages do
            kept.write_text(f"{run} {task} {seed}")
    for seed in SEEDS:
        kept = Path("data/baselines", task, f"kept/tfidf-50-1-{seed}.json")
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.unlink(missing_ok=True)
        kept.write_text(f"tfidf {task} {seed}")


def write_timings() -> None:
    """Costs of a run's pretraining and of its two trials of a task; only the first has a
    latency."""
    timings = Path("data/timings")
    (timings / "pretrain/encoder_mlm").mkdir(parents=True)
    machine = {"gpu_energy_j": 0.0, "hardware": "AMD EPYC", "threads": 1}
    measured = {"wall_time_s": 6.0, "processor_time_s": 10.0, "device": "cpu"} | machine
    (timings / "pretrain/encoder_mlm/1.json").write_text(json.dumps(measured))
    key = {"run": "encoder_mlm", "pretrain_seed": 1, "task": "tag", "method": "full"}
    key |= {"label_budget": "50", **machine}
    first = {"finetune_seed": 1, "wall_time_s": 3, "processor_time_s": 2, "latency_s": 0.004}
    second = {"finetune_seed": 2, "wall_time_s": 5, "processor_time_s": 4, "latency_s": ""}
    rows = [key | first | {"peak_memory_bytes": 10}, key | second | {"peak_memory_bytes": 15}]
    write_table(timings / "finetune/tag/encoder_mlm.csv", rows)


def write_report(comparison: str, *, best: tuple[str, str] | None = None) -> None:
    """Writes what MLflow shows of a report. The answer is the run and method with the best mean, or
    ``best``."""
    Path("reports/figures").mkdir(parents=True, exist_ok=True)
    Path("reports/comparison.md").write_text(comparison)
    Path("reports/index.html").write_text("<html>")
    Path("reports/figures/comparison.svg").write_text("<svg/>")
    trials = [
        {key: row[key] for key in KEYS} | {"value": f"{float(row['value']):.6f}"}
        for path in sorted(Path("data/evaluated").glob("*/trials.csv"))
        for row in records.read_texts(path)
    ]
    write_table(Path("reports/trials.csv"), trials)
    write_metrics(trials)
    write_answer(trials, best)
    here = {"task": "tag", "method": "full", "label_budget": "50"}
    runs = {"run_a": "encoder_mlm", "run_b": "encoder_scratch"}
    effects = [
        ("pretrained", 0.05, 0.01, 0.09, Verdict.SIGNIFICANT.value),
        ("size", 0.05, "", "", "one seed"),
    ]
    columns = ("axis", "effect", "low", "high", "verdict")
    rows = [dict(zip(columns, effect, strict=True)) | here | runs for effect in effects]
    write_table(Path("reports/contrasts.csv"), rows)
    write_table(Path("reports/questions.csv"), rows)


def write_answer(trials: list[dict], best: tuple[str, str] | None) -> None:
    places: dict[tuple[str, ...], list[float]] = {}
    for row in trials:
        place = row["task"], row["run"], row["method"], row["label_budget"]
        if row["method"] != "classical":
            places.setdefault(place, []).append(float(row["value"]))
    answers = []
    for task in dict.fromkeys(row["task"] for row in trials):
        here = {place: sum(values) for place, values in places.items() if place[0] == task}
        _, run, method, budget = max(here, key=lambda place: here[place])
        run, method = best or (run, method)
        answer = {"task": task, "label_budget": budget, "run": run, "method": method}
        answers.append(answer | {"use": f"Use {run}.", "against": "It leads.", "runs": "One run."})
    write_table(Path("reports/answer.csv"), answers)


def write_metrics(trials: list[dict]) -> None:
    """Writes a mean with an interval for runs, and a mean alone for the baseline."""
    places: dict[tuple[str, ...], list[float]] = {}
    for row in trials:
        place = tuple(row[key] for key in ("task", "run", "method", "label_budget"))
        places.setdefault(place, []).append(float(row["value"]))
    printed: dict = {}
    for (task, run, method, budget), values in places.items():
        mean = sum(values) / len(values)
        interval = {"low": mean - 0.1, "high": mean + 0.2} if run in RUNS else {}
        seeds = {"num_pretrain_seeds": 1, "num_finetune_seeds": len(values)}
        numbers = {"mean": mean, **interval, **seeds}
        printed.setdefault(task, {}).setdefault(run, {})[method] = {budget: numbers}
    Path("reports/metrics.json").write_text(json.dumps(printed))


def write_table(path: Path, rows: list[dict]) -> None:
    records.write_table(path, rows[0], rows)


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


def inputs(run: Run) -> list[tuple[str, str]]:
    """The name and digest of each input of a run."""
    datasets = [data.dataset for data in run.inputs.dataset_inputs] if run.inputs else []
    return [(dataset.name, dataset.digest) for dataset in datasets]


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
            sorted(file.path for file in client().list_artifacts(run.info.run_id)),
        )
        for run in shown()
    }


def id_of(run: Run) -> str:
    return run.info.run_id
