"""Runs a unit on a worker, in a process of its own, which dies with the worker."""

import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing import get_context, parent_process

from dask import config

from stages.core.artifacts import write_json
from stages.core.ending import die_with_parent
from stages.core.plans import FinetunePlan, read_plan
from stages.core.process import exit_on_mistake
from stages.core.training_environment import training_environment
from stages.scheduling.unit import Result, Status, Unit
from stages.trials.workers import IMPORTED_BY_TRIALS

# Uses the first Python of PATH, as the commands in dvc.yaml do.
DVC = ["python", "-m", "dvc", "--wait-for-lock", "repro", "--single-item"]
PRETRAIN = ["python", "-m", "stages.pretrain"]
# Output of DVC if a signal ended a command, or a killed DVC left files or locks behind.
KILLED = re.compile(r"exited with -\d+|Unable to acquire lock|is busy|corrupted|invalid.*dvc\.lock")


def run(unit: Unit, needed: Sequence[Result]) -> Result:
    """Runs a unit if all units that it needs are done; its output goes to its log."""
    if any(result.status != Status.DONE for result in needed):
        return Result(unit.name, Status.LEFT_OUT)
    # Dask sets these variables for its workers, but the study's own settings must apply.
    for name in config.get("distributed.nanny.pre-spawn-environ"):
        os.environ.pop(name, None)
    began = time.monotonic()
    unit.log.parent.mkdir(parents=True, exist_ok=True)
    if unit.trials:
        os.environ.update(training_environment())
        status = _status(in_fork(_fill_store, unit))
    elif unit.checkpoint:
        run, seed = unit.checkpoint
        command = [*PRETRAIN, run, "--only-seed", str(seed)]
        status = _status(_run(unit, command, os.environ | training_environment()))
    else:  # DVC decides whether there is anything to do
        status = _status(_run(unit, [*DVC, unit.name], os.environ))
        if status == Status.FAILED and KILLED.search(unit.end_of_log()):
            status = Status.KILLED
    return Result(unit.name, status, time.monotonic() - began)


def _run(unit: Unit, command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs a command with its output in the unit's log, and returns its exit status."""
    with unit.log.open("wb") as log:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
        return process.wait()


def _status(code: int | None) -> Status:
    """Returns the status of a unit whose process ended with ``code``."""
    if code == 0:
        return Status.DONE
    return Status.KILLED if (code or 0) < 0 else Status.FAILED


def in_fork(function: Callable[..., object], *arguments: object) -> int | None:
    """Calls ``function`` in a fork of a server process and returns the fork's exit status. Each
    worker has one server, so that it imports the modules of trials once. The fork and its server
    end with this process."""
    context = get_context("forkserver")
    modules = ["stages.core.fork_server", "stages.trials.groups", *IMPORTED_BY_TRIALS]
    context.set_forkserver_preload(modules)
    process = context.Process(target=_forked, args=(function, *arguments))
    process.start()
    process.join()
    return process.exitcode


def _forked(function: Callable[..., object], *arguments: object) -> None:
    die_with_parent()  # the parent is the fork server
    worker = parent_process()
    if worker is not None and worker.is_alive():
        function(*arguments)


def _fill_store(unit: Unit) -> None:
    with unit.log.open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)

    def fill() -> None:
        from stages.trials.groups import fill_store

        plan = read_plan(FinetunePlan, "finetune", unit.trials[0].task)
        outcomes = fill_store(plan, [*unit.trials])
        scores = [[*outcome.key, outcome.trial.validation_score] for outcome in outcomes]
        write_json(unit.scores_file, {"scores": scores})

    exit_on_mistake(fill)
