"""Units of work, and how a worker runs one. Workers import this module, so it imports no torch."""

import math
import os
import re
import runpy
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import current_process, get_context
from pathlib import Path
from typing import TypeVar

from dask import config

from stages.core import paths
from stages.core.ending import die_with_parent
from stages.core.keys import CheckpointKey, TrialKey
from stages.core.parallel import training_environment
from stages.core.plans import FinetunePlan, PretrainPlan, read_plan
from stages.core.process import exit_on_mistake
from stages.trials.workers import IMPORTED_BY_TRAININGS

LOGS = paths.SCRATCH / "logs"
STARTS = "starts"  # the topic of Dask's events that say which unit has started
# Uses the first Python of PATH, as the commands in dvc.yaml do.
DVC = ["python", "-m", "dvc", "--wait-for-lock", "repro", "--single-item"]
# Output of DVC if a signal ended a command, or a killed DVC left files or locks behind.
KILLED = re.compile(r"exited with -\d+|Unable to acquire lock|is busy|corrupted|invalid.*dvc\.lock")
PAUSE_S = 2.0  # after a kill, so that processes which die let go of their locks

Scores = tuple[tuple[TrialKey, float], ...]
R = TypeVar("R")


@dataclass(frozen=True)
class Unit:
    """A piece of work for a worker: a stage (by its name in DVC), the pretraining of a checkpoint,
    or a group of trials of one checkpoint, task and method. Pretraining and trials leave their
    results in a store, where a stage finds them."""

    name: str
    needs: tuple[str, ...]  # units that must be done first
    title: str = ""  # for people: "fine-tune minilm on tag, seed 2"
    checkpoint: CheckpointKey | None = None
    trials: tuple[TrialKey, ...] = ()
    stored: Scores = ()  # of a stage that fine-tunes: what the store has, on validation rows
    work: float = 0.0  # as `make plan` counts it; 0 if nothing is trained or its size is unknown
    is_solved: bool = False  # whether its trials train no weights of the model

    @property
    def priority(self) -> float:
        """What trains no weights comes first (baselines and linear probes have scores at once),
        then pretraining, because it is the longest path. The longest trials come first, so that all
        workers end at about the same time."""
        if self.is_solved or not (self.work or self.trials):
            return math.inf
        return self.work if self.trials else sys.float_info.max

    @property
    def log(self) -> Path:
        """The file that the unit prints to."""
        return LOGS / f"{self.name}.log"


class Killed(Exception):
    """Something killed the process of a unit: Dask tries it again."""


@dataclass(frozen=True)
class Result:
    """How a unit has ended. A unit that failed, other than by a kill, is not tried again: it would
    fail again."""

    failure: str = ""  # failed or killed
    seconds: float = 0.0
    scores: Scores = ()  # of trials on validation rows


def run(unit: Unit) -> Result:
    """Runs a unit in a process of its own, which dies with the worker. Its output goes to its
    log. Raises Killed if the process is killed."""
    from distributed import get_worker

    get_worker().log_event(STARTS, unit.name)
    # Dask sets these variables for its workers, but the study's own settings must apply.
    for name in config.get("distributed.nanny.pre-spawn-environ"):
        os.environ.pop(name, None)
    unit.log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    if unit.trials or unit.checkpoint:
        os.environ.update(training_environment())
    command = [*DVC, unit.name]  # DVC decides whether there is anything to do
    forks = bool(unit.trials)
    if unit.checkpoint:
        command = ["python", "-m", *_pretraining(unit.checkpoint)]
        plan = read_plan(PretrainPlan, "pretrain", unit.checkpoint.model)
        forks = plan.distributed.num_ranks == 1  # else it becomes the launcher of its ranks
    if forks:
        try:
            scores = in_fork(_train, unit)
            return Result("", time.monotonic() - began, scores)
        except BrokenProcessPool:
            raise Killed from None
        except SystemExit:
            return Result("failed", time.monotonic() - began)
    with unit.log.open("wb") as log:
        code = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=partial(die_with_parent, os.getpid()),
        ).returncode
    if code < 0 or (code and KILLED.search(unit.log.read_text(errors="replace"))):
        time.sleep(PAUSE_S)
        raise Killed
    return Result("failed" * bool(code), time.monotonic() - began)


def in_fork(function: Callable[..., R], *arguments: object) -> R:
    """Returns the result of ``function`` in a fork of a server process. Each worker has one server,
    so that it imports the modules of trainings once. The fork and its server end with this process.

    Raises BrokenProcessPool if the fork is killed, else what ``function`` raises.
    """
    current_process().daemon = False  # Dask's workers are daemons, which may have no children
    context = get_context("forkserver")
    modules = ["stages.core.fork_server", "stages.trials.groups", "stages.pretrain", __name__]
    context.set_forkserver_preload([*modules, *IMPORTED_BY_TRAININGS])
    with ProcessPoolExecutor(1, context, initializer=die_with_parent) as fork:
        return fork.submit(function, *arguments).result()


def _train(unit: Unit) -> Scores:
    """Trains a checkpoint or fills the store with trials; returns their scores."""
    with unit.log.open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    if unit.checkpoint:
        module, *sys.argv[1:] = _pretraining(unit.checkpoint)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return ()
    from stages.trials.groups import fill_store

    outcomes = []

    def fill() -> None:
        plan = read_plan(FinetunePlan, "finetune", unit.trials[0].task)
        outcomes.extend(fill_store(plan, [*unit.trials]))

    exit_on_mistake(fill)
    scores = ((trial.key, trial.record.validation_score) for trial in outcomes)
    return tuple((key, score) for key, score in scores if score is not None)


def _pretraining(checkpoint: CheckpointKey) -> list[str]:
    """Returns the module that pretrains a checkpoint, and its arguments."""
    model, seed = checkpoint
    return ["stages.pretrain", model, "--only-seed", str(seed)]
