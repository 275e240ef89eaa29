"""MLflow as a view of files: nothing waits for it, and nothing fails because it does.

A ``Tracker`` mirrors a pretraining while it runs. ``reconcile`` makes MLflow show what the records
of the study say: results that come from DVC's cache appear without being trained again, nothing is
logged twice, and what the files no longer say loses the tag ``current``. A point of a curve has its
step as timestamp, since MLflow drops a point that it has already.

The only module that imports mlflow, and late: that takes longer than a small stage does.
"""

import fcntl
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
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from stages.core import paths
from stages.core.params import Params
from stages.tracking.records import Data, Point, RunRecord, corpus_data, digest, flat, recorded

if TYPE_CHECKING:
    import mlflow.entities

STORE, ARTIFACTS = Path("mlflow.db"), Path("mlruns")  # unless MLFLOW_TRACKING_URI names others
LOCK = paths.SCRATCH / "mlflow.lock"

# A pretraining that ends sooner is left to reconcile: importing mlflow takes seconds.
DELAY_S = 20.0
FLUSH_S = 5.0
GIVE_UP_S = 30.0
MAX_METRICS, MAX_PARAMS, MAX_NOTE = 800, 100, 8000  # what MLflow takes at once
NOTE = "mlflow.note.content"
TAGS = ("task", "method", "architecture", "size", "corpus", "seed")  # columns of the page of runs
VIEW = "study"


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
        self._record = RunRecord(
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
                view.log_inputs(run, corpus_data(self._record.tags["corpus"]))
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

    def begin(self, record: RunRecord, *, started: float | None = None) -> "mlflow.entities.Run":
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

    def show(self, record: RunRecord) -> None:
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

    def arrange(self, records: Iterable[RunRecord]) -> None:
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


def _table(path: Path) -> Any:
    import pandas as pd

    # Nothing but an empty field is unknown: "none" and "NA" are names.
    return pd.read_csv(path, keep_default_na=False, na_values=[""])


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
