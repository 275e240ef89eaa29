"""MLflow as a view of files: nothing waits for it, and nothing fails because it does.

A ``Tracker`` mirrors a pretraining while it runs. ``reconcile`` makes MLflow show what the files of
the study say, whoever made them: a run is known by the fingerprint of what went into it, so that
results that come from DVC's cache appear without being trained again, nothing is logged twice, and
what the files no longer say loses the tag ``current``. A point of a curve has its step as
timestamp, since MLflow drops a point that it has already.

The only module that imports mlflow, and late: that takes longer than a small stage does.
"""

import csv
import fcntl
import hashlib
import json
import logging
import os
import queue
import sqlite3
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from types import TracebackType
from typing import TYPE_CHECKING, Any

from stages.artifacts import read_json, sha256
from stages.params import NONE, Params
from stages.training.energy import Energy

if TYPE_CHECKING:
    import mlflow.entities

STORE, ARTIFACTS = Path("mlflow.db"), Path("mlruns")  # unless MLFLOW_TRACKING_URI names others
LOCK = Path(".scratch/mlflow.lock")
CORPORA, TASKS = Path("data/corpora"), Path("data/tasks")
PRETRAINED, EVALUATED = Path("data/pretrained"), Path("data/evaluated")
PROGRESS, TIMINGS, REPORTS = Path("data/progress"), Path("data/timings"), Path("reports")

DELAY_S = (
    20.0  # a pretraining that ends sooner is left to reconcile: importing mlflow takes seconds
)
FLUSH_S = 5.0
GIVE_UP_S = 30.0
MAX_METRICS, MAX_PARAMS, MAX_NOTE = 800, 100, 8000  # what MLflow takes at once

Point = tuple[str, float, int]  # key, value, step
Row = dict[str, str]

AMOUNTS = (
    *("best_epoch", "num_params", "num_trained_params", "weights_bytes"),
    *("pretrain_tokens", "pretrain_flops", "lineage_tokens", "lineage_flops", "finetune_flops"),
)
CURVES = ("train_loss", "validation_metric")
COSTS = (
    *("wall_time_s", "peak_memory_bytes", "processor_time_s", "gpu_energy_j"),
    *("latency_s", "texts_per_s", "tokens_per_s"),
)
DIGEST = 16  # hexadecimal digits of a hash, to tell data apart by
NOTE = "mlflow.note.content"
TAGS = ("task", "method", "architecture", "size", "corpus", "seed")  # columns of the page of runs
VIEW = "study"


@dataclass(frozen=True)
class Data:
    """What a run read: a corpus or a task."""

    name: str
    digest: str  # of its content
    folder: str
    use: str  # pretraining or fine-tuning
    counts: dict[str, Any]  # how much each split has


@dataclass(frozen=True)
class Record:
    """One run as MLflow shall show it."""

    name: str
    kind: str  # pretraining, baseline, trials or comparison
    fingerprint: str
    parent: str = ""  # the parent's fingerprint
    tags: dict[str, str] = field(default_factory=dict)  # to group, to filter and to search by
    inputs: list[Data] = field(default_factory=list)
    params: dict[str, str] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    costs: dict[str, float] = field(default_factory=dict)  # another value each time it is measured
    note: str = ""  # Markdown
    artifacts: list[str] = field(default_factory=list)  # files and folders; CSV also as tables


class Tracker:
    """Mirrors one pretraining while it runs: ``with Tracker(...) as tracker: tracker.log(...)``.

    A thread of its own does the work, from ``delay_s`` seconds after the start, in batches. A run
    that was interrupted and is resumed goes on in MLflow too.
    """

    def __init__(
        self,
        study: str,
        run_name: str,
        *,
        params: Mapping[str, Any],
        tags: Mapping[str, str],
        fingerprint: str,
        delay_s: float = DELAY_S,
    ) -> None:
        self._study = study
        self._record = Record(
            run_name,
            "pretraining",
            f"{run_name}:{fingerprint}",
            tags={"study": study, **tags, "seed": str(params["seed"])},
            params={"run": run_name, **tags} | flat(params),
        )
        self._delay_s = delay_s
        self._points: queue.SimpleQueue[Point] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._status = "FINISHED"
        self._started = 0.0
        self._thread = threading.Thread(target=self._mirror, daemon=True)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """One point of each curve; returns at once."""
        if self._thread.is_alive():
            for key, value in values.items():
                self._points.put((key, float(value), step))

    def __enter__(self) -> "Tracker":
        self._started = time.time()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is not None:
            self._status = "FAILED" if issubclass(kind, Exception) else "KILLED"
        self._ended.set()
        self._thread.join(GIVE_UP_S)
        if self._thread.is_alive():
            _warn(f"no answer within {GIVE_UP_S:.0f} s")

    def _mirror(self) -> None:
        if self._ended.wait(self._delay_s):
            return
        with _warned():
            with _alone():
                view = View(self._study)
                run = view.begin(self._record, started=self._started)
                view.log(run, params=self._record.params, tags=self._record.tags)
                view.log_inputs(run, _corpus(self._record.tags["corpus"]))
            ended = False
            while not ended:
                ended = self._ended.wait(FLUSH_S)
                view.log(run, points=[self._points.get() for _ in range(self._points.qsize())])
            if self._status == "FINISHED":
                view.log(run, tags={"current": "true"})
            view.client.set_terminated(run.info.run_id, self._status)


def reconcile(params: Params) -> str:
    """Make MLflow show what the files of the study say; where its pages do so.

    A failure is one line of warning, and the answer "".
    """
    with _warned():
        records = recorded(params)
        with _alone():
            view = View(params.study)
            for record in records:
                view.show(record)
            view.retire(keep=[record.fingerprint for record in records])
            view.arrange(records)
        page = f"#/experiments/{view.experiment.experiment_id}/runs"
        return f"{page}?workflowType=machine_learning&viewStateShareKey={VIEW}"
    return ""


class View:
    """The MLflow experiment of a study."""

    def __init__(self, study: str) -> None:
        self.client = _client()
        experiment = self.client.get_experiment_by_name(study)
        if experiment is None:
            place = ARTIFACTS.resolve().as_uri() if address() == _default() else None
            kind = {"mlflow.experimentKind": "custom_model_development"}
            experiment = self.client.get_experiment(
                self.client.create_experiment(study, place, tags=kind)
            )
        elif experiment.lifecycle_stage == "deleted":
            self.client.restore_experiment(experiment.experiment_id)
        self.experiment = experiment
        self._runs: dict[str, list[mlflow.entities.Run]] = defaultdict(list)  # by fingerprint
        token: str | None = None
        while token != "":
            page = self.client.search_runs(
                [experiment.experiment_id], order_by=["start_time ASC"], page_token=token
            )
            for run in page:
                self._runs[run.data.tags.get("fingerprint", "")].append(run)
            token = page.token or ""

    def begin(self, record: Record, *, started: float | None = None) -> "mlflow.entities.Run":
        """The run of this fingerprint, running (again); since ``started``, in seconds of the epoch,
        or for as long as its costs say."""
        if known := self._runs[record.fingerprint]:
            self.client.update_run(known[0].info.run_id, "RUNNING")
            return known[0]
        if started is None:
            started = time.time() - record.costs.get("wall_time_s", 0)
        run = self.client.create_run(
            self.experiment.experiment_id,
            start_time=round(1000 * started),
            run_name=record.name,
            tags={"kind": record.kind, "fingerprint": record.fingerprint},
        )
        known.append(run)
        return run

    def show(self, record: Record) -> None:
        """Log what MLflow lacks of a record, and mark it as current."""
        known = self._runs[record.fingerprint]
        run = known[0] if known else self.begin(record)
        run_id, tags = run.info.run_id, record.tags | {"current": "true"}
        results = (record.points, record.costs, record.note, record.artifacts)
        tags["content"] = digest([record.name, record.kind, *results])
        if record.parent:
            tags["mlflow.parentRunId"] = self._runs[record.parent][0].info.run_id
        if record.note:
            tags[NOTE] = record.note[:MAX_NOTE]
            self._set_tag(NOTE, tags[NOTE])

        self.log_inputs(run, record.inputs)
        if run.data.tags.get("content") == tags["content"]:
            self.log(run, params=record.params, tags=tags)
            return
        if record.artifacts:
            self._log_artifacts(run_id, record.artifacts)
        # What was mirrored live ended with its training, not now.
        ended = run.info.end_time if run.info.status == "FINISHED" else None
        self.client.set_terminated(run_id, end_time=ended)
        # The tag "content" comes last: what is interrupted before is logged again.
        self.log(run, points=record.points, costs=record.costs, params=record.params, tags=tags)

    def log_inputs(self, run: "mlflow.entities.Run", inputs: Iterable[Data]) -> None:
        """Log those that MLflow lacks, as names with digests: it copies no data."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        logged = run.inputs.dataset_inputs if run.inputs else []
        known = {(each.dataset.name, each.dataset.digest) for each in logged}
        new = [
            DatasetInput(
                Dataset(
                    data.name,
                    data.digest,
                    source_type="local",
                    source=json.dumps({"uri": data.folder}),
                    profile=json.dumps(data.counts),
                ),
                [InputTag("mlflow.data.context", data.use)],
            )
            for data in inputs
            if (data.name, data.digest) not in known
        ]
        if new:
            self.client.log_inputs(run.info.run_id, new)

    def _log_artifacts(self, run_id: str, paths: Iterable[str]) -> None:
        """Files and folders, and CSV files as tables too. MLflow appends to a table that is there,
        as an interrupted reconciliation leaves it: then no rows are added, and it is listed."""
        there = {file.path for file in self.client.list_artifacts(run_id, "tables")}
        for path in map(Path, paths):
            self.client.log_artifact(run_id, str(path))
            if path.suffix == ".csv":
                place, table = f"tables/{path.stem}.json", _table(path)
                self.client.log_table(run_id, table[:0] if place in there else table, place)

    def retire(self, *, keep: Iterable[str]) -> None:
        """Only the first run of each of these fingerprints stays current."""
        for fingerprint, runs in self._runs.items():
            for run in runs[fingerprint in keep :]:
                if run.data.tags.get("current") == "true":
                    self.log(run, tags={"current": "false"})

    def arrange(self, records: Iterable[Record]) -> None:
        """Have the page of runs show the current ones, with their scores and what they are: the
        view that a link with VIEW opens, kept as the page's own button "Share" keeps one."""
        metrics = sorted({record.points[0][0] for record in records if record.kind == "trials"})
        columns = [f"metrics.`{key}`" for key in metrics] + [f"tags.`{key}`" for key in TAGS]
        state = {"searchFilter": 'tags.current="true"', "selectedColumns": columns}
        self._set_tag(f"mlflow.sharedViewState.{VIEW}", json.dumps(state))

    def _set_tag(self, key: str, value: str) -> None:
        """Of the experiment, if it has another."""
        if self.experiment.tags.get(key) != value:
            self.client.set_experiment_tag(self.experiment.experiment_id, key, value)

    def log(
        self,
        run: "mlflow.entities.Run",
        *,
        points: Iterable[Point] = (),
        costs: Mapping[str, float] | None = None,
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Log in batches, tags last; of the parameters only new ones, since they cannot change."""
        from mlflow.entities import Metric, Param, RunTag

        now = round(1000 * time.time())
        metrics = [Metric(key, value, step, step) for key, value, step in points]
        metrics += [Metric(key, value, now, 0) for key, value in (costs or {}).items()]
        new = [Param(k, v) for k, v in (params or {}).items() if k not in run.data.params]
        changed = [RunTag(k, v) for k, v in (tags or {}).items() if run.data.tags.get(k) != v]
        num_batches = max(-(-len(metrics) // MAX_METRICS), -(-len(new) // MAX_PARAMS))
        for i in range(num_batches or bool(changed)):
            self.client.log_batch(
                run.info.run_id,
                metrics[i * MAX_METRICS : (i + 1) * MAX_METRICS],
                new[i * MAX_PARAMS : (i + 1) * MAX_PARAMS],
                changed if i + 1 >= num_batches else [],
            )


def recorded(params: Params) -> list[Record]:
    """Every run that params.yaml lists and whose files are there; parents before children.

    All have the same keys of parameters, "none" where one does not apply.
    """
    study = params.study
    data = {task: _task(task) for task in params.tasks}
    groups = [group for task in params.tasks for group in _groups(task)]
    parents = [_pretraining(run, study) for run in params.pretrain if (PRETRAINED / run).exists()]
    parents += [_baseline(run, entry, study) for run, entry in params.baselines.items()]
    records = []
    for parent in parents:
        own = [group for group in groups if group.run == parent.name]
        if own or parent.kind == "pretraining":
            records += [parent, *(_trials(g, parent, data[g.task], params) for g in own)]
    if (REPORTS / "comparison.md").exists():
        records.append(_comparison(study))
    keys = sorted({key for record in records for key in record.params})
    for record in records:
        record.params.update({key: NONE for key in keys if key not in record.params})
    return records


def _corpus(name: str) -> list[Data]:
    """The corpus, if it is one and there."""
    path = CORPORA / name / "corpus.json"
    if not path.exists():
        return []
    about = read_json(path)
    counts = {split: about[split] for split in ("train", "validation")}
    return [Data(name, about["sha256"][:DIGEST], str(path.parent), "pretraining", counts)]


def _task(name: str) -> list[Data]:
    """The task, if it is there."""
    path = TASKS / name / "examples" / "task.json"
    if not path.exists():
        return []
    files = [*sorted(path.parent.glob("*.jsonl")), TASKS / name / "test_labels.jsonl"]
    counts = read_json(path)["num_examples"]
    return [Data(name, sha256(*files)[:DIGEST], str(TASKS / name), "fine-tuning", counts)]


def _pretraining(run: str, study: str) -> Record:
    folder = PRETRAINED / run
    about, summary = read_json(folder / "run.json"), read_json(folder / "metrics.json")
    timing = TIMINGS / "pretrain" / f"{run}.json"
    curves = [
        (key, float(row[key]), int(row["step"]))
        for row in _rows(PROGRESS / "history" / f"{run}.csv")
        for key in ("loss", "lr", "validation_loss")
        if row[key]
    ]
    drawn = {key for key, *_ in curves}
    return Record(
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
        inputs=_corpus(about["corpus"]),
        params={"run": run, "architecture": about["architecture"]} | flat(about["settings"]),
        points=curves + [(k, v, 0) for k, v in _numbers(summary).items() if k not in drawn],
        costs=_with_energy(_numbers(read_json(timing))) if timing.exists() else {},
    )


def _baseline(run: str, entry: Mapping[str, Any], study: str) -> Record:
    own = {"run": run, "architecture": entry["name"]} | flat({"baseline": entry})
    tags = {"study": study, "architecture": entry["name"]}
    return Record(run, "baseline", digest(own), tags=tags, params=own)


@dataclass(frozen=True)
class Group:
    """The trials of a run that differ in nothing but the fine-tuning seed."""

    run: str
    task: str
    method: str
    label_budget: str
    trials: list[Row]
    epochs: list[Row]


def _groups(task: str) -> Iterator[Group]:
    keys = ("run", "task", "method", "label_budget")
    trials = _grouped(_rows(EVALUATED / task / "trials.csv"), *keys)
    epochs = _grouped(_rows(EVALUATED / task / "history.csv"), *keys)
    for (run, task, method, label_budget), rows in trials.items():
        curve = epochs.get((run, task, method, label_budget), [])
        yield Group(run, task, method, label_budget, rows, curve)


def _trials(group: Group, parent: Record, task: list[Data], params: Params) -> Record:
    trials, metric = group.trials, group.trials[0]["metric"]
    values = [float(trial["value"]) for trial in trials]
    points = [(metric, fmean(values), 0)]
    points += [(f"{metric}_std", stdev(values), 0)] if len(values) > 1 else []
    points += [(f"{metric}_by_seed", float(t["value"]), int(t["finetune_seed"])) for t in trials]
    points += [("lr_by_seed", float(t["lr"]), int(t["finetune_seed"])) for t in trials]
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
        _rows(TIMINGS / "finetune" / group.task / f"{group.run}.csv"), "method", "label_budget"
    ).get((group.method, group.label_budget), [])
    return Record(
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


def _comparison(study: str) -> Record:
    files = sorted(path for path in REPORTS.rglob("*") if path.is_file())
    return Record(
        "comparison",
        "comparison",
        digest([sha256(*files), *map(str, files)]),
        tags={"study": study},
        note=(REPORTS / "comparison.md").read_text(encoding="utf-8"),
        artifacts=sorted(map(str, REPORTS.iterdir())),
    )


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
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


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {key: float(value) for key, value in values.items() if isinstance(value, int | float)}


def _rows(path: Path) -> list[Row]:
    """The rows of a CSV file; none where there is no file yet."""
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


def address() -> str:
    """The MLflow store."""
    return os.environ.get("MLFLOW_TRACKING_URI") or _default()


def _default() -> str:
    return f"sqlite:///{STORE.resolve()}"


def _client() -> "mlflow.MlflowClient":
    # On a closed network nothing may look for a server that is not there, or wait for long.
    quick = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "10", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}
    for key, value in {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", **quick}.items():
        os.environ.setdefault(key, value)
    if address().startswith("sqlite:///"):
        path = Path(address().removeprefix("sqlite:///"))
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=GIVE_UP_S)) as database:
            # Where this fails, MLflow would try for minutes. With WAL, readers do not wait.
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("BEGIN IMMEDIATE")

    from mlflow import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return MlflowClient(address())


def _table(path: Path) -> Any:
    import pandas as pd

    # Nothing but an empty field is unknown: "none" and "NA" are names.
    return pd.read_csv(path, keep_default_na=False, na_values=[""])


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time: two that create a database both fail, and both would add a run."""
    LOCK.parent.mkdir(exist_ok=True)
    with LOCK.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _warned() -> Iterator[None]:
    """An error inside becomes one line of warning."""
    try:
        yield
    except Exception as error:
        _warn(" ".join(str(error).split()) or type(error).__name__)


def _warn(message: str) -> None:
    print(f"warning: MLflow ({address()}): {message[:300]}", file=sys.stderr)
