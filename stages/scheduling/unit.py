"""A unit of work for a worker. Every worker loads the imports of this module, so torch is not one
of them."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from stages.core import paths

LOGS = paths.SCRATCH / "logs"
END = 4096  # bytes of a log that are read


@dataclass(frozen=True)
class Trials:
    """A group of trials that are not in the store."""

    run: str
    task: str
    keys: tuple[tuple[str, str, int], ...]  # method, label budget, seed: a TrialKey each

    @property
    def name(self) -> str:
        return f"trials@{'-'.join([self.task, self.run, *map(str, self.keys[0])])}"

    @property
    def needs(self) -> tuple[str, str]:
        return f"pretrain@{self.run}", f"prepare_task@{self.task}"


@dataclass(frozen=True)
class Unit:
    """A stage, by its name in DVC, or a group of trials."""

    name: str
    needs: tuple[str, ...]  # units that must be done first
    trials: Trials | None = None

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
