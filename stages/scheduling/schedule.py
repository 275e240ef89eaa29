"""Starts the workers of a study (on this machine, as jobs of Slurm, or at a running scheduler) and
runs units on them, each as soon as the units that it needs are done."""

import logging
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path

from dask import config
from distributed import Client, KilledWorker, Nanny, Scheduler, SpecCluster, as_completed

from stages.core import paths
from stages.core.artifacts import Json
from stages.core.parallel import visible_gpus
from stages.scheduling import worker
from stages.scheduling.progress import Progress
from stages.scheduling.worker import LOGS, Killed, Result, Unit

LOCK = Path("dvc.lock")
RETRIES = 2  # of a unit that something kills
LINES_OF_LOG = 12
PATIENCE_S = 20  # time for a scheduler to answer
QUIET: Json = {"silence_logs": logging.CRITICAL}
SETTINGS = {
    "distributed.scheduler.allowed-failures": 2,  # retries of a unit whose worker died
    "distributed.scheduler.worker-saturation": 1.0,  # any worker may take a waiting unit
    "distributed.nanny.pre-spawn-environ": {},
    # Workers only wait for processes: no profiles and no short ticks.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "temporary-directory": str(paths.SCRATCH / "dask"),
}


@contextmanager
def workers(
    number: int, batch_system: str | None = None, address: str | None = None
) -> Iterator[Client]:
    """Yields a client of workers: those of the running scheduler at an ``address``, which must
    share this folder; else a ``number`` of jobs of Slurm, with the settings (``jobqueue.slurm``) of
    Dask's configuration files; else a ``number`` of processes on this machine.

    Raises ValueError if the scheduler does not answer, and if workers or jobs cannot be started.
    """
    with config.set(SETTINGS), ExitStack() as stack:
        if address:
            try:
                client = Client(address, timeout=PATIENCE_S)
            except (OSError, ValueError):
                raise ValueError(
                    f"--scheduler {address}: no scheduler answers there; start one by `dask "
                    f"scheduler`, workers in this folder by `dask worker {address} --nthreads 1`"
                ) from None
            yield stack.enter_context(client)
            return
        cluster = stack.enter_context(_slurm(number) if batch_system else _local(number))
        try:
            yield stack.enter_context(Client(cluster))
        except KeyboardInterrupt:
            # Dask would wait for the workers' units and restart killed workers. The processes of a
            # worker end with it.
            for nanny in () if batch_system else cluster.workers.values():
                nanny.close_gracefully()
                with suppress(ProcessLookupError, TypeError):  # it has ended, or not started
                    os.kill(nanny.pid, signal.SIGKILL)
            raise


def _local(number: int) -> SpecCluster:
    """Starts workers on this machine. If it has GPUs, each of several workers sees one."""
    gpus = visible_gpus() if number > 1 else []
    here: Json = {"host": "127.0.0.1"}
    options = here | QUIET | {"nthreads": 1, "memory_limit": 0}
    envs = [{"CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} if gpus else {} for i in range(number)]
    nannies = {i: {"cls": Nanny, "options": options | {"env": env}} for i, env in enumerate(envs)}
    options = here | {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    scheduler = {"cls": Scheduler, "options": options}
    # Only this process handles Ctrl-C, and it ends the others, which inherit the blocked signal.
    # The tracker is started first, since it unblocks the signal when it starts. It would warn of
    # what killed workers leave, and removes it.
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        return SpecCluster(nannies, scheduler, **QUIET)
    except RuntimeError as error:
        raise ValueError(f"a worker did not start ({error}); try again") from None
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _slurm(number: int) -> SpecCluster:
    """Asks Slurm for jobs of one worker each, which runs one unit at a time.

    Raises ValueError where Slurm's commands are missing, or a job's cores and memory are not set.
    """
    if not shutil.which("sbatch"):
        raise ValueError("--cluster slurm: no command sbatch; run this where jobs are submitted")
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    import dask_jobqueue

    signal.signal(signal.SIGINT, on_ctrl_c)  # the import has set a handler that exits with 0
    threads = [*config.get("jobqueue.slurm.worker-extra-args"), "--nthreads", "1"]
    jobs: Json = {"processes": 1, "log_directory": str(LOGS), "worker_extra_args": threads}
    cluster = dask_jobqueue.SLURMCluster(**jobs, **QUIET)
    cluster.scale(number)
    return cluster


def complete(client: Client, units: Sequence[Unit]) -> None:
    """Runs units. If one is not done, the units that need it are left out. Units wait until there
    is a worker.

    Raises ValueError at the end if units failed, or were killed in each attempt.
    """
    waiting, running, done = [*units], dict[object, Unit](), set[str]()
    ended, failed = as_completed(), list[Unit]()
    if not client.nthreads():  # a batch system may take hours to start the first
        print("No worker has started yet; waiting for one")
    with Progress(units) as progress:
        client.subscribe_topic(worker.STARTS, lambda event: progress.started(event[1]))
        while True:
            for unit in [unit for unit in waiting if done.issuperset(unit.needs)]:
                future = client.submit(
                    worker.run, unit, pure=False, priority=unit.priority, retries=RETRIES
                )
                ended.add(future)
                running[future.key] = unit
                waiting.remove(unit)
            if not running:
                break
            future = next(ended)
            unit = running.pop(future.key)
            try:
                result = future.result()
            except (Killed, KilledWorker):
                result = Result("killed")
            failed += [unit] if result.failure else []
            done |= set() if result.failure else {unit.name}
            progress.ended(unit, result)
    for unit in failed:
        lines = unit.log.read_text(errors="replace").strip().splitlines()[-LINES_OF_LOG:]
        print(f"{unit.title} failed; the end of {unit.log}:", *lines, sep="\n    ")
    if failed:
        titles = "; ".join(unit.title for unit in failed)
        left_out = f"{len(waiting)} that need them were left out"
        raise ValueError(f"{len(failed)} failed: {titles}; {left_out}")


@contextmanager
def ordered_lock(stages: Sequence[str]) -> Iterator[None]:
    """Sorts dvc.lock when the context ends, as one ``dvc repro`` would: earlier entries, then the
    new ones in the order of ``stages``. (Stages that run side by side end in a random order, in
    which DVC adds them.)"""
    from dvc.utils.serialize import ParseError, load_yaml, modify_yaml

    before = load_yaml(LOCK).get("stages", {}) if LOCK.exists() else {}
    try:
        yield
    finally:
        if LOCK.exists():
            with suppress(ParseError), modify_yaml(LOCK) as lock:  # `heal` mends a broken one
                entries = lock.get("stages", {})
                for name in dict.fromkeys([*before, *stages, *entries]):
                    if name in entries:
                        entries.move_to_end(name)
