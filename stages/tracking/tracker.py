"""Mirrors a pretraining to MLflow while it runs; MLflow never delays training or stops it."""

import queue
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from stages.core.components import Settings
from stages.core.keys import RunKey
from stages.tracking import store
from stages.tracking.records import (
    Point,
    corpus_data,
    objective_tags,
    pretraining_record,
    train_metrics,
)
from stages.tracking.store import errors_as_warnings, exclusive, warn
from stages.tracking.view import View

# A pretraining that ends sooner is left to ``reconcile``: importing mlflow takes seconds.
DELAY_S = 20.0
FLUSH_S = 5.0
TIMEOUT_S = 30.0  # at the end, for points that are not yet logged


class Tracker:
    """The mirror of one pretraining: ``with Tracker(...) as tracker: tracker.log(...)``.

    A background thread starts after ``delay_s`` seconds to log in batches. A pretraining that is
    resumed continues its run in MLflow.
    """

    def __init__(
        self,
        study: str,
        checkpoint: RunKey,
        *,
        params: Settings,
        tags: Mapping[str, str],
        fingerprint: str,
        delay_s: float = DELAY_S,
    ) -> None:
        self._study = study
        self._record = pretraining_record(
            checkpoint,
            fingerprint,
            tags={"study": study, **tags}
            | objective_tags(params["objective"]["name"], tags["corpus"]),
            settings=params,
        )
        self._delay_s = delay_s
        self._points: queue.SimpleQueue[Point] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._status = "FINISHED"
        self._started = 0.0
        self._thread = threading.Thread(target=self._mirror, daemon=True)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Adds one point to each curve and returns at once."""
        if self._thread.is_alive():
            for key, value in train_metrics(values).items():
                self._points.put((key, float(value), step))

    def __enter__(self) -> "Tracker":
        self._started = time.time()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            self._status = "FAILED" if issubclass(kind, Exception) else "KILLED"
        self._ended.set()
        self._thread.join(TIMEOUT_S)
        if self._thread.is_alive():
            warn(f"no answer within {TIMEOUT_S:.0f} s")

    def _mirror(self) -> None:
        if self._ended.wait(self._delay_s):
            return
        with errors_as_warnings():
            with exclusive():
                view = View(self._study)
                run = view.begin(self._record, self._started)
                view.client.update_run(run.info.run_id, "RUNNING")  # also if it is resumed
                view.log(run, params=self._record.params)
                view.log_inputs(run, corpus_data(self._record.tags["corpus"]))
            with _load_of_machine(run.info.run_id):
                ended = False
                while not ended:
                    ended = self._ended.wait(FLUSH_S)
                    view.log(run, points=[self._points.get() for _ in range(self._points.qsize())])
            if self._status == "FINISHED":
                view.log(run, tags={"current": "true"})
            view.client.set_terminated(run.info.run_id, self._status)


@contextmanager
def _load_of_machine(run_id: str) -> Iterator[None]:
    """Logs the load of the whole machine under ``system/`` every 10 s. A run that is resumed
    continues its curves."""
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

    monitor = SystemMetricsMonitor(run_id, resume_logging=True, tracking_uri=store.address())
    monitor.start()
    try:
        yield
    finally:
        monitor.finish()
