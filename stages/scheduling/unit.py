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
    title: str = ""  # for people: "fine-tune minilm on tag, seed 2"
    checkpoint: RunKey | None = None
    trials: tuple[TrialKey, ...] = ()
    # Of a stage that fine-tunes: the trials that the store has, with their scores on validation.
    stored: tuple[tuple[TrialKey, float], ...] = ()
    work: float = 0.0  # as `make plan` counts it; 0 if nothing is trained or its size is unknown

    @property
    def log(self) -> Path:
        """The file that the unit prints to."""
        return LOGS / f"{self.name}.log"

    @property
    def scores_file(self) -> Path:
        """The file with the scores of its trials on validation rows."""
        return LOGS / f"{self.name}.json"

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
