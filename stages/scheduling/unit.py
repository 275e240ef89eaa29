"""A unit of work for a worker. Every worker imports this module, so it does not import torch."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from stages.core import paths
from stages.core.keys import RunKey, TrialKey

LOGS = paths.SCRATCH / "logs"
END = 4096  # bytes of a log that are read


@dataclass(frozen=True)
class Unit:
    """A piece of work for a worker: a stage (by its name in DVC), the pretraining of a checkpoint,
    or a group of trials of one checkpoint, task and method. Pretraining and trials leave their
    results in a store, where a stage finds them."""

    name: str
    needs: tuple[str, ...]  # units that must be done first
    checkpoint: RunKey | None = None
    trials: tuple[TrialKey, ...] = ()
    work: float = 0.0  # planned operations; 0 if nothing is trained or its size is unknown

    @property
    def log(self) -> Path:
        """The file that the unit prints to."""
        return LOGS / f"{self.name}.log"

    def end_of_log(self) -> str:
        """Returns the last kilobytes of the log; empty if nothing was printed."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(self.log.stat().st_size - END, 0))
                return log.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return ""


class Status(StrEnum):
    DONE = "done"
    FAILED = "failed"  # a mistake or a bug: it would fail again
    KILLED = "killed"  # killed from outside: another try may succeed
    LEFT_OUT = "left out"  # a unit that it needs was not done


@dataclass(frozen=True)
class Result:
    unit: str
    status: Status
    seconds: float = 0.0
