"""Runs a unit on a worker, in a process of its own, which dies with the worker."""

import os
import re
import subprocess
import time
from collections.abc import Sequence
from multiprocessing import get_context

from dask import config

from stages.core.params import load
from stages.core.process import die_with_parent, exit_on_mistake
from stages.core.training_environment import training_environment
from stages.scheduling.unit import Result, Status, Trials, Unit
from stages.trials.workers import IMPORTED_BY_TRIALS

# Uses the first Python of PATH, as the commands in dvc.yaml do.
DVC = ["python", "-m", "dvc", "--wait-for-lock", "repro", "--single-item"]
# Output of DVC if a signal ended a command, or a killed DVC left files or locks behind.
KILLED = re.compile(r"exited with -\d+|Unable to acquire lock|is busy|corrupted|invalid.*dvc\.lock")


def run(unit: Unit, needed: Sequence[Result]) -> Result:
    """Runs a unit if all units that it needs are done; its output goes to its log."""
    if any(each.status != Status.DONE for each in needed):
        return Result(unit.name, Status.LEFT_OUT)
    # Dask sets these variables for its workers, but the study's own settings must apply.
    for name in config.get("distributed.nanny.pre-spawn-environ"):
        os.environ.pop(name, None)
    began = time.monotonic()
    unit.log.parent.mkdir(parents=True, exist_ok=True)
    status = _stage(unit) if unit.trials is None else _trials(unit, unit.trials)
    return Result(unit.name, status, time.monotonic() - began)


def _stage(unit: Unit) -> Status:
    """Runs a stage by DVC, which decides whether there is anything to do."""
    with unit.log.open("wb") as log:
        process = subprocess.Popen(
            [*DVC, unit.name],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,
        )
        code = process.wait()
    if code == 0:
        return Status.DONE
    return Status.KILLED if code < 0 or KILLED.search(unit.end_of_log()) else Status.FAILED


def _trials(unit: Unit, trials: Trials) -> Status:
    """Runs trials in a fork of a process that has imported their modules, once for each worker."""
    os.environ.update(training_environment())
    context = get_context("forkserver")
    context.set_forkserver_preload(["stages.trials.groups", *IMPORTED_BY_TRIALS])
    process = context.Process(target=_fill_store, args=(unit, trials))
    process.start()
    process.join()
    if process.exitcode == 0:
        return Status.DONE
    return Status.KILLED if (process.exitcode or 0) < 0 else Status.FAILED


def _fill_store(unit: Unit, trials: Trials) -> None:
    die_with_parent()
    with unit.log.open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)

    def fill() -> None:
        from stages.trials.groups import fill_store
        from stages.trials.outcome import TrialKey

        fill_store(load(), trials.run, trials.task, [TrialKey(*key) for key in trials.keys])

    exit_on_mistake(fill)
