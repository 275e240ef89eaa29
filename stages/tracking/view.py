"""Makes MLflow show the results of a study.

``reconcile`` logs what MLflow lacks of the study's records: results from DVC's cache appear without
training, nothing is logged twice, and superseded runs lose the tag ``current``. The timestamp of a
point is its step, so that a point logged again is equal to the first, and MLflow drops it.

mlflow is imported late, because the import takes longer than a small stage.
"""

import json
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from stages.core.locks import LockHeld
from stages.core.params import Params
from stages.tracking import store
from stages.tracking.notes import tags_with_description
from stages.tracking.records import NOTE_TAG, Data, Point, RunRecord
from stages.tracking.registry import register
from stages.tracking.saved_views import LEADERBOARD, SavedView, saved_views
from stages.tracking.store import errors_as_warnings, exclusive
from stages.tracking.study import note_left_out, recorded

if TYPE_CHECKING:
    from mlflow.entities import Experiment, Run

MAX_METRICS, MAX_PARAMS = 800, 100  # MLflow's limits for one request
MAX_RUNS = 50_000  # MLflow's limit for one answer
SHARED = "mlflow.sharedViewState."
DEFAULT = "Default"  # the experiment that MLflow makes in every database
NOTE = (
    "A page that is loaded again has lost the columns and charts of its view: click the view's "
    "link again. The rest is in `reports/index.html`, a page for the browser, and "
    "`reports/comparison.md`."
)


def reconcile(params: Params, *, loader: str | None = None) -> dict[str, str]:
    """Makes MLflow show the results in the files of the study. Returns the paths of MLflow's pages
    by their titles, the page of scores first. With ``loader``, the module that loads a model for
    MLflow, the best models are registered.

    A failure prints one line of warning and returns no page. Raises LockHeld if another process
    holds the lock of ``exclusive`` for too long.
    """
    pages: dict[str, str] = {}
    with errors_as_warnings(other_than=LockHeld):
        records = recorded(params)
        with exclusive():
            view = View(params.study)
            for record in records:
                view.show(record)
            view.retire_others()
            pages = view.arrange(saved_views(params.tasks, records))
            if loader:
                with errors_as_warnings():
                    register(view.client, view.run_ids, params.study, params.tasks, records, loader)
        note_left_out(records)
    return pages


class View:
    """The MLflow experiment of a study."""

    def __init__(self, study: str) -> None:
        self.client = store.client()
        self.experiment = self._experiment(study)
        self.run_ids: dict[str, str] = {}  # of shown runs, by the name of their record
        self._runs: dict[str, Run] = {}  # by fingerprint
        runs = self.client.search_runs([self.experiment.experiment_id], max_results=MAX_RUNS)
        for run in runs:
            self._runs[run.data.tags.get("fingerprint", run.info.run_id)] = run

    def _experiment(self, study: str) -> "Experiment":
        experiment = self.client.get_experiment_by_name(study)
        if experiment and experiment.lifecycle_stage == "deleted":
            self.client.restore_experiment(experiment.experiment_id)
        place = store.artifacts()
        if experiment and place and experiment.artifact_location != place:
            # The project was copied or moved, and MLflow has no call that changes this address.
            identity = experiment.experiment_id
            self.client.rename_experiment(identity, f"{study}, moved ({identity})")
            self.client.delete_experiment(identity)
            experiment = None
        if experiment is None:
            kind = {"mlflow.experimentKind": "custom_model_development"}
            identity = self.client.create_experiment(study, place, tags=kind)
            experiment = self.client.get_experiment(identity)
        return experiment

    def begin(self, record: RunRecord, started: float) -> "Run":
        """Returns the run with the record's fingerprint, or a new one that began at ``started``
        (seconds since the epoch)."""
        if record.fingerprint not in self._runs:
            self._runs[record.fingerprint] = self.client.create_run(
                self.experiment.experiment_id,
                start_time=round(1000 * started),
                run_name=record.name,
                tags=tags_with_description(record)
                | _commit()
                | {"kind": record.kind, "fingerprint": record.fingerprint},
            )
        return self._runs[record.fingerprint]

    def show(self, record: RunRecord) -> None:
        """Logs what MLflow lacks of a record, and tags its run as current. The record's parent must
        be shown before. A description that was edited in MLflow stays, except the report's."""
        run = self.begin(record, time.time() - record.duration_s)
        self.run_ids[record.name] = run.info.run_id
        tags = record.tags | {"current": "true", "content": record.content}
        if record.parent:
            tags["mlflow.parentRunId"] = self.run_ids[record.parent]
        if run.data.tags.get("content") == record.content:
            self.log(run, tags=tags)
            return
        self.log_inputs(run, record.inputs)
        for path in record.artifacts:
            self.client.log_artifact(run.info.run_id, path)
        if run.info.status != "FINISHED":  # a run that was mirrored live has ended already
            self._end(run, record.duration_s)
        # The tag "content" comes last: after an interruption, the record is logged again.
        self.log(run, points=record.points, costs=record.costs, params=record.params, tags=tags)

    def _end(self, run: "Run", duration_s: float) -> None:
        """Ends a run ``duration_s`` seconds after its start; if this is 0, without an end time."""
        if duration_s:
            end = run.info.start_time + round(1000 * duration_s)
            self.client.set_terminated(run.info.run_id, end_time=end)
        else:
            self.client.update_run(run.info.run_id, "FINISHED")

    def log_inputs(self, run: "Run", inputs: Iterable[Data]) -> None:
        """Logs inputs as names with digests; MLflow drops those that the run already has."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        datasets = [
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
        ]
        if datasets:
            self.client.log_inputs(run.info.run_id, datasets)

    def log(
        self,
        run: "Run",
        *,
        points: Iterable[Point] = (),
        costs: Mapping[str, float] | None = None,
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Logs to a run in batches, tags last. Logs new parameters only: they cannot change."""
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

    def retire_others(self) -> None:
        """Sets the tag ``current`` to false for all runs that were not shown."""
        shown = {*self.run_ids.values()}
        for run in self._runs.values():
            if run.info.run_id not in shown and run.data.tags.get("current") == "true":
                self.client.set_tag(run.info.run_id, "current", "false")

    def arrange(self, views: Sequence[SavedView]) -> dict[str, str]:
        """Saves views of the list of runs, and links them in the experiment's note. Returns the
        paths of the views by their titles."""
        identity = self.experiment.experiment_id
        runs, workflow = f"#/experiments/{identity}/runs", "?workflowType=machine_learning"
        pages = {view.title: f"{runs}{workflow}&{view.query}" for view in views}
        if report := self.run_ids.get("comparison"):
            pages["The report"] = f"{runs}/{report}{workflow}"
        # MLflow shows the first line of a note; the rest opens with a click. The list of
        # experiments shows the first words alone, and prints markdown as it is.
        links = ", ".join(f"[{title}]({path})" for title, path in pages.items())
        tags = {NOTE_TAG: f"Models and baselines: {links}\n\n{NOTE}"}
        for place, view in enumerate(reversed(views)):
            tags[f"{SHARED}{view.key}"] = view.saved(place + 1)
        for key, value in tags.items():
            if self.experiment.tags.get(key) != value:
                self.client.set_experiment_tag(identity, key, value)
        for key in self.experiment.tags.keys() - tags.keys():
            if key.startswith(f"{SHARED}{LEADERBOARD}"):  # of a task that is gone
                self.client.delete_experiment_tag(identity, key)
        self._explain_default(f"[{self.experiment.name}]({next(iter(pages.values()))})")
        return pages

    def _explain_default(self, study: str) -> None:
        """Writes where the study is into the note of MLflow's default experiment. This experiment
        is not deleted, since it gets the runs that someone logs without naming an experiment."""
        default = self.client.get_experiment_by_name(DEFAULT) if store.artifacts() else None
        note = f"For runs that are logged without naming an experiment. The study is {study}."
        if default and default.lifecycle_stage == "active" and default.tags.get(NOTE_TAG) != note:
            self.client.set_experiment_tag(default.experiment_id, NOTE_TAG, note)


@cache
def _commit() -> dict[str, str]:
    """Returns the tag with the commit that is checked out; empty outside of git."""
    git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    return {} if git.returncode else {"mlflow.source.git.commit": git.stdout.strip()}
