"""Makes MLflow show the results of a study.

``reconcile`` logs what MLflow lacks of the study's records: results from DVC's cache appear without
training, nothing is logged twice, and superseded runs lose the tag ``current``. The timestamp of a
point is its step, because MLflow drops a point that it already has.

mlflow is imported late: that takes longer than a small stage.
"""

import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stages.core import paths
from stages.core.params import Params
from stages.tracking import store
from stages.tracking.note import note
from stages.tracking.origin import origin_tags
from stages.tracking.records import Data, Point, RunRecord, digest
from stages.tracking.registry import Registry
from stages.tracking.saved_views import SavedView, is_ours, saved_views
from stages.tracking.store import errors_as_warnings, exclusive
from stages.tracking.study import recorded, warn_of_left_out
from stages.tracking.tables import Table

if TYPE_CHECKING:
    import mlflow.entities
    import pandas as pd

MAX_METRICS, MAX_PARAMS = 800, 100  # MLflow's limits of one request
NOTE = "mlflow.note.content"
SHARED = "mlflow.sharedViewState."
LOGGED_TABLES = "mlflow.loggedArtifacts"  # by which it shows a JSON file as a table


def reconcile(params: Params, *, loader: str | None = None) -> dict[str, str]:
    """Make MLflow show what the files of the study say; returns the paths of its pages by their
    titles, that of the scores first. With ``loader``, the module that loads a model for MLflow, the
    best models are registered.

    A failure prints one line of warning and returns no page.
    """
    with errors_as_warnings():
        records, saved = recorded(params), {}
        with exclusive():
            view = View(params.study)
            for record in records:
                view.show(record)
            view.retire(keep={record.fingerprint for record in records})
            saved = view.arrange(saved_views(params, records))
            if loader:
                with errors_as_warnings():
                    place = view.client, view.experiment.experiment_id
                    Registry(*place, params, loader).update(records, view.run_ids())
        warn_of_left_out(params)
        return saved
    return {}


class View:
    """The MLflow experiment of a study."""

    def __init__(self, study: str) -> None:
        self.client = store.client()
        experiment = self.client.get_experiment_by_name(study)
        if experiment is None:
            kind = {"mlflow.experimentKind": "custom_model_development"}
            experiment = self.client.get_experiment(
                self.client.create_experiment(study, store.artifacts(), tags=kind)
            )
        elif experiment.lifecycle_stage == "deleted":
            self.client.restore_experiment(experiment.experiment_id)
        place = store.artifacts()
        moved = experiment.artifact_location.startswith("file:") and (
            experiment.artifact_location != place
        )
        if place and moved:  # the project was copied or moved
            store.relocate(experiment.artifact_location, place)
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
            started = time.time() - record.costs.get("cost/wall_time_s", 0)
        run = self.client.create_run(
            self.experiment.experiment_id,
            start_time=round(1000 * started),
            run_name=record.name,
            tags=origin_tags(record.kind)
            | record.tags
            | {"kind": record.kind, "fingerprint": record.fingerprint},
        )
        known.append(run)
        return run

    def show(self, record: RunRecord) -> None:
        """Log what MLflow lacks of a record, and tag it as current."""
        known = self._runs[record.fingerprint]
        run = known[0] if known else self.begin(record)
        run_id, tags = run.info.run_id, record.tags | {"current": "true"}
        results = [record.points, record.costs, record.note, record.artifacts]
        if record.tables:
            results.append([*record.tables])
            listed = [{"path": f"{name}.json", "type": "table"} for name in record.tables]
            tags[LOGGED_TABLES] = json.dumps(listed)
        tags["content"] = digest([record.kind, *results])
        if record.parent:
            tags["mlflow.parentRunId"] = self._runs[record.parent][0].info.run_id
        if record.note:
            tags[NOTE] = record.note
        if run.info.run_name != record.name:  # one that was mirrored live has the name of its entry
            self.client.update_run(run_id, name=record.name)

        self.log_inputs(run, record.inputs)
        is_shown = run.data.tags.get("content") == tags["content"]
        if is_shown and self._has_files(run, record):
            self.log(run, params=record.params, tags=tags)
            return
        if record.artifacts:
            self._log_artifacts(run_id, record.artifacts)
        if record.tables:
            self._log_tables(run_id, record.tables)
        # A run that was mirrored live ended with its training, not now.
        ended = run.info.end_time if run.info.status == "FINISHED" else None
        self.client.set_terminated(run_id, end_time=ended)
        # The tag "content" comes last: after an interruption, the record is logged again.
        self.log(run, points=record.points, costs=record.costs, params=record.params, tags=tags)

    def run_ids(self) -> dict[str, str]:
        """Of the runs that are shown, by their fingerprints."""
        return {fingerprint: runs[0].info.run_id for fingerprint, runs in self._runs.items()}

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

    def _log_artifacts(self, run_id: str, places: Iterable[str]) -> None:
        """Files and folders, and CSV files also as tables. MLflow appends to a table that exists,
        which an interruption leaves behind: then no rows are added, and the table gets listed."""
        there = {file.path for file in self.client.list_artifacts(run_id, "tables")}
        for path in map(Path, places):
            self.client.log_artifact(run_id, str(path))
            if path.suffix == ".csv":
                place, table = f"tables/{path.stem}.json", _table(path)
                self.client.log_table(run_id, table.head(0) if place in there else table, place)

    def _has_files(self, run: "mlflow.entities.Run", record: RunRecord) -> bool:
        """False if the database was copied without them. A server is asked of reports alone: each
        question takes MLflow longer than all else about a run that is shown."""
        place = store.local(run.info.artifact_uri or "")
        if place is None:
            return not record.artifacts or bool(self.client.list_artifacts(run.info.run_id))
        return not (record.artifacts or record.tables) or (place.is_dir() and any(place.iterdir()))

    def _log_tables(self, run_id: str, tables: Mapping[str, Callable[[], Table]]) -> None:
        """In the form of ``mlflow.log_table``, which would append to what an interruption left."""
        with tempfile.TemporaryDirectory() as folder:
            for name, table in tables.items():
                found = table()
                data = [[*row.values()] for row in found]
                content = {"columns": [*found[0]] if found else [], "data": data}
                Path(folder, f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
            self.client.log_artifacts(run_id, folder)

    def retire(self, *, keep: Collection[str]) -> None:
        """Only the first run with each of these fingerprints stays current."""
        for fingerprint, runs in self._runs.items():
            for run in runs[fingerprint in keep :]:
                if run.data.tags.get("current") == "true":
                    self.log(run, tags={"current": "false"})

    def arrange(self, views: Sequence[SavedView]) -> dict[str, str]:
        """Save views of the list of runs, and link them in the experiment's note; returns their
        paths by their titles."""
        page = f"#/experiments/{self.experiment.experiment_id}/runs?workflowType=machine_learning"
        saved = {}
        for place, view in enumerate(reversed(views)):
            self._set_tag(f"{SHARED}{view.key}", view.saved(place + 1))
        keys = {view.key for view in views}
        for tag in [*self.experiment.tags]:
            key = tag.removeprefix(SHARED)
            if tag != key and is_ours(key) and key not in keys:  # of a task that is gone
                self.client.delete_experiment_tag(self.experiment.experiment_id, tag)
        for view in views:
            saved[view.title] = f"{page}&viewStateShareKey={view.key}"
        links = [f"[{title}]({path})" for title, path in saved.items()]
        report = paths.REPORTS / "comparison.md"
        self._set_tag(NOTE, note(report.read_text("utf-8") if report.exists() else "", links))
        return saved

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
