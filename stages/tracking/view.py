"""Makes MLflow show the results of a study.

``reconcile`` logs what MLflow lacks of the study's records: results from DVC's cache appear without
training, nothing is logged twice, and superseded runs lose the tag ``current``. The timestamp of a
point is its step, so that a point logged again is equal to the first, and MLflow drops it.

mlflow is imported late, because the import takes longer than a small stage.
"""

import subprocess
import time
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import quote

from stages.core.params import Params
from stages.tracking import store
from stages.tracking.records import PRETRAINING, STUDY, TRIAL, Point, RunRecord, recorded
from stages.tracking.store import errors_as_warnings, exclusive

if TYPE_CHECKING:
    from mlflow.entities import Experiment, Run

MAX_METRICS, MAX_PARAMS = 800, 100  # MLflow's limits for one request
MAX_RUNS = 50_000  # MLflow's limit for one answer


def reconcile(params: Params) -> dict[str, str]:
    """Makes MLflow show the results in the files of the study. Returns the paths of MLflow's pages
    by their titles; none, after a line of warning, if MLflow fails."""
    with errors_as_warnings(), exclusive():
        view = View(params.study)
        for record in recorded(params):
            view.show(record)
        view.retire_others()
        return view.pages()
    return {}


class View:
    """The MLflow experiment of a study, which is created if it is missing."""

    def __init__(self, study: str) -> None:
        self.client = store.client()
        self.experiment = self._experiment(study)
        runs = self.client.search_runs([self.experiment.experiment_id], max_results=MAX_RUNS)
        self._runs: dict[str, Run] = {run.data.tags.get("identity", ""): run for run in runs}
        self._shown: dict[str, RunRecord] = {}  # by identity

    def _experiment(self, study: str) -> "Experiment":
        experiment, place = self.client.get_experiment_by_name(study), store.artifacts()
        if experiment and experiment.lifecycle_stage == "deleted":
            self.client.restore_experiment(experiment.experiment_id)
        if experiment and place and experiment.artifact_location != place:
            # The project was copied or moved; MLflow has no call that changes this address.
            identity = experiment.experiment_id
            self.client.rename_experiment(identity, f"{study}, moved ({identity})")
            experiment = None
        if experiment is None:
            kind = {"mlflow.experimentKind": "custom_model_development"}
            identity = self.client.create_experiment(study, place, tags=kind)
            experiment = self.client.get_experiment(identity)
        return experiment

    def begin(self, record: RunRecord, started: float) -> "Run":
        """Returns the run with the record's identity, or a new one that began at ``started``
        (seconds since the epoch)."""
        if record.identity not in self._runs:
            self._runs[record.identity] = self.client.create_run(
                self.experiment.experiment_id,
                start_time=round(1000 * started),
                run_name=record.name,
                tags=record.tags | _commit() | {"kind": record.kind, "identity": record.identity},
            )
        return self._runs[record.identity]

    def show(self, record: RunRecord) -> None:
        """Logs what MLflow lacks of a record, and tags its run as current. The record's parent must
        be shown before."""
        self._shown[record.identity] = record
        run = self.begin(record, time.time() - record.duration_s)
        tags = record.tags | {"current": "true", "content": record.content}
        if record.parent:
            tags["mlflow.parentRunId"] = self._runs[record.parent].info.run_id
        if run.data.tags.get("content") == record.content:
            self.log(run, tags=tags)
            return
        for path in record.artifacts:
            self.client.log_artifact(run.info.run_id, path)
        if run.info.status != "FINISHED":  # a run that was mirrored live has ended already
            end = run.info.start_time + round(1000 * record.duration_s)
            self.client.set_terminated(run.info.run_id, end_time=end)
        # The tag "content" comes last: after an interruption, the record is logged again.
        self.log(run, points=record.points, costs=record.costs, params=record.params, tags=tags)

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
        for identity, run in self._runs.items():
            if identity not in self._shown and run.data.tags.get("current") == "true":
                self.client.set_tag(run.info.run_id, "current", "false")

    def pages(self) -> dict[str, str]:
        """Returns the paths of MLflow's pages of the study by their titles."""
        # Without the workflow, MLflow 3 may show its pages for language-model applications.
        runs, workflow = f"#/experiments/{self.experiment.experiment_id}/runs", "machine_learning"
        pages = dict[str, str]()
        for title, kind in (("Models", PRETRAINING), ("Trials", TRIAL)):
            query = quote(f'tags.current="true" and tags.kind="{kind}"')
            pages[title] = f"{runs}?workflowType={workflow}&searchFilter={query}"
        for identity, record in self._shown.items():
            if record.kind == STUDY:
                pages["The report"] = f"{runs}/{self._runs[identity].info.run_id}/artifacts"
        return pages


@cache
def _commit() -> dict[str, str]:
    """Returns the tag with the commit that is checked out; empty outside of git."""
    git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    return {} if git.returncode else {"mlflow.source.git.commit": git.stdout.strip()}
