"""Makes MLflow show the results of a study.

``reconcile`` logs what MLflow lacks of the study's records: results from DVC's cache appear without
training, nothing is logged twice, and superseded runs lose the tag ``current``. The timestamp of a
point is its step, because MLflow drops a point that it already has.

mlflow is imported late: that takes longer than a small stage.
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from stages.core.params import Params
from stages.tracking import store
from stages.tracking.records import Data, Point, RunRecord, digest, recorded
from stages.tracking.store import errors_as_warnings, exclusive

if TYPE_CHECKING:
    import mlflow.entities
    import pandas as pd

MAX_METRICS, MAX_PARAMS, MAX_NOTE = 800, 100, 8000  # MLflow's limits of one request
NOTE = "mlflow.note.content"
TAGS = ("task", "method", "architecture", "size", "corpus", "seed")  # columns of the list of runs
VIEW = "study"


def reconcile(params: Params) -> str:
    """Make MLflow show what the files of the study say; returns the path of its page.

    A failure prints one line of warning and returns "".
    """
    with errors_as_warnings():
        records = recorded(params)
        with exclusive():
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
        self.client = store.client()
        experiment = self.client.get_experiment_by_name(study)
        if experiment is None:
            place = (
                store.ARTIFACTS.resolve().as_uri()
                if store.address() == store.default_address()
                else None
            )
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
        """The run with this fingerprint, as running. A new run begins at ``started`` (seconds since
        the epoch) or, without it, as long ago as its costs say."""
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
        """Log what MLflow lacks of a record, and tag it as current."""
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
        # A run that was mirrored live ended with its training, not now.
        ended = run.info.end_time if run.info.status == "FINISHED" else None
        self.client.set_terminated(run_id, end_time=ended)
        # The tag "content" comes last: after an interruption, the record is logged again.
        self.log(run, points=record.points, costs=record.costs, params=record.params, tags=tags)

    def log_inputs(self, run: "mlflow.entities.Run", inputs: Iterable[Data]) -> None:
        """Log the inputs that MLflow lacks, as names with digests; no data is copied."""
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
        """Files and folders, and CSV files also as tables. MLflow appends to a table that exists,
        which an interruption leaves behind: then no rows are added, and the table gets listed."""
        there = {file.path for file in self.client.list_artifacts(run_id, "tables")}
        for path in map(Path, paths):
            self.client.log_artifact(run_id, str(path))
            if path.suffix == ".csv":
                place, table = f"tables/{path.stem}.json", _table(path)
                self.client.log_table(run_id, table.head(0) if place in there else table, place)

    def retire(self, *, keep: Iterable[str]) -> None:
        """Only the first run with each of these fingerprints stays current."""
        for fingerprint, runs in self._runs.items():
            for run in runs[fingerprint in keep :]:
                if run.data.tags.get("current") == "true":
                    self.log(run, tags={"current": "false"})

    def arrange(self, records: Iterable[RunRecord]) -> None:
        """Save a view of the list of runs: the current ones, with scores and tags as columns. A
        link with VIEW opens it. It is saved in the way of MLflow's own button "Share"."""
        metrics = sorted({record.points[0][0] for record in records if record.kind == "trials"})
        columns = [f"metrics.`{key}`" for key in metrics] + [f"tags.`{key}`" for key in TAGS]
        state = {"searchFilter": 'tags.current="true"', "selectedColumns": columns}
        self._set_tag(f"mlflow.sharedViewState.{VIEW}", json.dumps(state))

    def _set_tag(self, key: str, value: str) -> None:
        """Set a tag of the experiment if its value differs."""
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
        """Log in batches, tags last, and only new parameters, since they cannot change."""
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


def _table(path: Path) -> "pd.DataFrame":
    import pandas as pd

    # Only an empty field is missing: "none" and "NA" are names.
    return pd.read_csv(path, keep_default_na=False, na_values=[""])
