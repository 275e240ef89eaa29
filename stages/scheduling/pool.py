"""The workers of a study: on this machine, as jobs of Slurm, or at a running scheduler."""

import logging
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import resource_tracker

from dask import config
from distributed import Client, Nanny, Scheduler, SpecCluster

from stages.core import paths
from stages.core.artifacts import Json
from stages.core.parallel import visible_gpus
from stages.scheduling.worker import LOGS

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
    # The tracker is started first, since it unblocks the signal when it starts.
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
