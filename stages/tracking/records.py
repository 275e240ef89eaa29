"""Records: what MLflow shows of each run, read from the files of the study.

The fingerprint of a run's inputs identifies it, wherever its files were computed.
"""

import csv
import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from stages.core import paths
from stages.core.artifacts import read_json, sha256
from stages.core.components import Settings
from stages.core.params import NONE, Params
from stages.training.energy import Energy

Point = tuple[str, float, int]  # key, value, step
Row = dict[str, str]

AMOUNTS = (
    *(
        "best_epoch",
        "num_epochs",
        "num_steps",
        "last_train_loss",
        "num_tries",
        "num_params",
        "num_trained_params",
        "weights_bytes",
    ),
    *("pretrain_tokens", "pretrain_flops", "lineage_tokens", "lineage_flops", "finetune_flops"),
    "lineage_bytes",
)
CURVES = ("train_loss", "validation_metric", "validation_loss")
PRETRAINING_CURVES = ("loss", "lr", "validation_loss")
COSTS = (
    *("wall_time_s", "peak_memory_bytes", "processor_time_s", "gpu_energy_j"),
    *("latency_s", "texts_per_s", "tokens_per_s"),
)
DIGEST = 16  # hexadecimal digits of the hash that identifies data


@dataclass(frozen=True)
class Data:
    """An input of a run: a corpus or a task."""

    name: str
    digest: str  # of its content
    folder: str
    use: str  # pretraining or fine-tuning
    counts: dict[str, Any]  # the sizes of its splits


@dataclass(frozen=True)
class RunRecord:
    """One run as MLflow shows it."""

    name: str
    kind: str  # pretraining, baseline, trials or comparison
    fingerprint: str
    parent: str = ""  # the parent's fingerprint
    tags: dict[str, str] = field(default_factory=dict)  # for grouping, filtering and searching
    inputs: list[Data] = field(default_factory=list)
    params: dict[str, str] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    costs: dict[str, float] = field(default_factory=dict)  # measured, so they differ each time
    note: str = ""  # Markdown
    artifacts: list[str] = field(default_factory=list)  # files, folders; CSV also as tables


def recorded(params: Params) -> list[RunRecord]:
    """Every run that params.yaml lists and whose files exist; parents before children.

    All have the same parameters, with the value "none" where one does not apply.
    """
    study = params.study
    data = {task: _task_data(task) for task in params.tasks}
    groups = [group for task in params.tasks for group in _groups(task)]
    parents = [
        _pretraining(run, study) for run in params.pretrain if (paths.PRETRAINED / run).exists()
    ]
    parents += [_baseline(run, entry, study) for run, entry in params.baselines.items()]
    records = []
    for parent in parents:
        own = [group for group in groups if group.run == parent.name]
        if own or parent.kind == "pretraining":
            records += [parent, *(_trials(g, parent, data[g.task], params) for g in own)]
    if (paths.REPORTS / "comparison.md").exists():
        records.append(_comparison(study))
    keys = sorted({key for record in records for key in record.params})
    for record in records:
        record.params.update({key: NONE for key in keys if key not in record.params})
    return records


def corpus_data(name: str) -> list[Data]:
    """The corpus ``name``; empty if its files do not exist."""
    path = paths.CORPORA / name / "corpus.json"
    if not path.exists():
        return []
    about = read_json(path)
    counts = {split: about[split] for split in ("train", "validation")}
    return [Data(name, about["sha256"][:DIGEST], str(path.parent), "pretraining", counts)]


def _task_data(name: str) -> list[Data]:
    """The task ``name``; empty if its files do not exist."""
    path = paths.examples(name) / "task.json"
    if not path.exists():
        return []
    files = [*sorted(path.parent.glob("*.jsonl")), paths.test_labels(name)]
    counts = read_json(path)["num_examples"]
    return [Data(name, sha256(*files)[:DIGEST], str(paths.TASKS / name), "fine-tuning", counts)]


def _pretraining(run: str, study: str) -> RunRecord:
    folder = paths.PRETRAINED / run
    about, summary = read_json(folder / "run.json"), read_json(folder / "metrics.json")
    timing = paths.TIMINGS / "pretrain" / f"{run}.json"
    curves = [
        (key, value, int(row["step"]))
        for row in _rows(paths.PROGRESS / "history" / f"{run}.csv")
        for key, value in _measured(row).items()
    ]
    drawn = {key for key, *_ in curves}
    curves += [
        (key, value, int(row["step"]))
        for row in _rows(paths.PROGRESS / "rates" / f"{run}.csv")
        for key, value in at_rate(_measured(row), float(row["rate"])).items()
    ]
    if "lr" in summary:
        summary["kept_lr"] = summary["lr"]  # the curve of that name falls and rises
    return RunRecord(
        run,
        "pretraining",
        f"{run}:{about['fingerprint']}",
        tags={
            "study": study,
            "architecture": about["architecture"],
            "size": f"{about['num_layers']}x{about['d_model']}",
            "corpus": about["corpus"],
            "seed": str(about["settings"]["seed"]),  # of pretraining
        },
        inputs=corpus_data(about["corpus"]),
        params={"run": run, "architecture": about["architecture"]} | flat(about["settings"]),
        points=curves + [(k, v, 0) for k, v in _numbers(summary).items() if k not in drawn],
        costs=_with_energy(_numbers(read_json(timing))) if timing.exists() else {},
    )


def _measured(row: Row) -> dict[str, float]:
    """What a row of a history holds; NaN of a step that diverged is left out."""
    named = {key: float(row[key]) for key in PRETRAINING_CURVES if row[key]}
    return {key: value for key, value in named.items() if math.isfinite(value)}


def at_rate(measured: Mapping[str, float], rate: float) -> dict[str, float]:
    """The names of curves of one of several learning rates that a run tries."""
    return {f"{key}_at_{rate}": value for key, value in measured.items() if key != "lr"}


def _baseline(run: str, entry: Settings, study: str) -> RunRecord:
    own = {"run": run, "architecture": entry["name"]} | flat({"baseline": entry})
    tags = {"study": study, "architecture": entry["name"]}
    return RunRecord(run, "baseline", digest(own), tags=tags, params=own)


@dataclass(frozen=True)
class TrialGroup:
    """The trials of a run or a baseline that differ only in seeds."""

    run: str
    task: str
    method: str
    label_budget: str
    trials: list[Row]
    epochs: list[Row]


def _groups(task: str) -> Iterator[TrialGroup]:
    keys = ("run", "task", "method", "label_budget")
    trials = _grouped(_rows(paths.EVALUATED / task / "trials.csv"), *keys)
    epochs = _grouped(_rows(paths.EVALUATED / task / "history.csv"), *keys)
    for (run, task, method, label_budget), rows in trials.items():
        curve = epochs.get((run, task, method, label_budget), [])
        yield TrialGroup(run, task, method, label_budget, rows, curve)


def _trials(group: TrialGroup, parent: RunRecord, task: list[Data], params: Params) -> RunRecord:
    trials, metric = group.trials, group.trials[0]["metric"]
    values = [float(trial["value"]) for trial in trials]
    points = [(metric, fmean(values), 0)]
    points += [(f"{metric}_std", stdev(values), 0)] if len(values) > 1 else []
    for (seed,), rows in _grouped(trials, "finetune_seed").items():
        points.append((f"{metric}_by_seed", _mean(rows, "value"), int(seed)))
        points.append(("lr_by_seed", _mean(rows, "lr"), int(seed)))
    points += [(trials[0]["other_metric"], _mean(trials, "other_value"), 0)]
    known = [key for key in AMOUNTS if all(trial[key] for trial in trials)]
    points += [(key, _mean(trials, key), 0) for key in known]
    for (epoch,), rows in _grouped(group.epochs, "epoch").items():
        points += [(key, _mean(rows, key), int(epoch)) for key in CURVES]

    method = params.finetune.methods.get(group.method)
    own = parent.params | {
        "task": group.task,
        "method": group.method,
        "label_budget": group.label_budget,
        **(flat({"finetune": method.model_dump(exclude_none=True)}) if method else {}),
    }
    timed = _grouped(
        _rows(paths.TIMINGS / "finetune" / group.task / f"{group.run}.csv"),
        "method",
        "label_budget",
    ).get((group.method, group.label_budget), [])
    return RunRecord(
        f"{group.run}/{group.task}/{group.method}/{group.label_budget}",
        "trials",
        digest([parent.fingerprint, own, vars(group)]),
        parent.fingerprint,
        tags=parent.tags | {"task": group.task, "method": group.method},
        inputs=task,
        params=own,
        points=points,
        costs=_with_energy(
            {key: _mean(known, key) for key in COSTS if (known := [t for t in timed if t.get(key)])}
        ),
    )


def _with_energy(costs: dict[str, float]) -> dict[str, float]:
    energy = Energy.of(costs.get("processor_time_s", 0.0), costs.get("gpu_energy_j"))
    if energy is None:
        return costs
    return costs | {"energy_j_estimate": energy.joules, "co2e_g_estimate": energy.co2e_g}


def _comparison(study: str) -> RunRecord:
    files = sorted(path for path in paths.REPORTS.rglob("*") if path.is_file())
    return RunRecord(
        "comparison",
        "comparison",
        digest([sha256(*files), *map(str, files)]),
        tags={"study": study},
        note=(paths.REPORTS / "comparison.md").read_text(encoding="utf-8"),
        artifacts=sorted(map(str, paths.REPORTS.iterdir())),
    )


def flat(values: Settings, prefix: str = "") -> dict[str, str]:
    """``{"training": {"lr": 0.1}}`` -> ``{"training.lr": "0.1"}``."""
    pairs: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            pairs |= flat(value, f"{prefix}{key}.")
        else:
            pairs[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value)
    return pairs


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _numbers(values: Settings) -> dict[str, float]:
    return {key: float(value) for key, value in values.items() if isinstance(value, int | float)}


def _rows(path: Path) -> list[Row]:
    """The rows of a CSV file; empty if it does not exist."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _grouped(rows: Iterable[Row], *keys: str) -> dict[tuple[str, ...], list[Row]]:
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys)].append(row)
    return dict(groups)


def _mean(rows: Iterable[Row], key: str) -> float:
    return fmean(float(row[key]) for row in rows)
