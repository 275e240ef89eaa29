"""Mirrors a pretraining to MLflow while it runs; MLflow never delays training or stops it."""

import queue
import threading
import time
from collections.abc import Mapping

from stages.core.components import Settings
from stages.core.keys import CheckpointKey
from stages.tracking.records import Point, curves, objective_tags, pretraining_record
from stages.tracking.store import errors_as_warnings, exclusive, warn
from stages.tracking.view import View

# A pretraining that ends sooner is left to ``reconcile``: importing mlflow takes seconds.
DELAY_S = 60.0
FLUSH_S = 5.0
TIMEOUT_S = 30.0  # at the end, for points that are not yet logged


class Tracker:
    """The mirror of one pretraining: ``with Tracker(...) as tracker: tracker.log(...)``.

    Logs from a background thread, in batches, beginning ``delay_s`` seconds after the start. A
    pretraining that is resumed continues its run in MLflow.
    """

    def __init__(
        self,
        study: str,
        checkpoint: CheckpointKey,
        *,
        params: Settings,
        tags: Mapping[str, str],
        fingerprint: str,
        delay_s: float = DELAY_S,
    ) -> None:
        self._study, self._delay_s = study, delay_s
        self._objective = str(params["objective"]["name"])
        learnt = objective_tags(self._objective, tags["corpus"])
        self._record = pretraining_record(
            study, checkpoint, fingerprint, settings=params, tags={**tags, **learnt}
        )
        self._points: queue.SimpleQueue[Point] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._status = "FINISHED"
        self._thread = threading.Thread(target=self._mirror, daemon=True)

    def log(self, step: int, values: Mapping[str, float], *, rate: float | None = None) -> None:
        """Adds one point to each curve and returns at once. ``rate`` is the learning rate, if
        several are tried: their curves have names of their own."""
        if self._thread.is_alive():
            for key, value in curves(values, self._objective, rate).items():
                self._points.put((key, value, step))

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
                entry = view.begin(self._record, self._started)
            view.client.update_run(entry.info.run_id, "RUNNING")  # also if it is resumed
            view.log(entry, params=self._record.params)
            ended = False
            while not ended:
                ended = self._ended.wait(FLUSH_S)
                view.log(entry, points=[self._points.get() for _ in range(self._points.qsize())])
            if self._status == "FINISHED":
                view.log(entry, tags={"current": "true"})
            view.client.set_terminated(entry.info.run_id, self._status)
