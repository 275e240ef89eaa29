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
QUIET: Json = {"silence_logs": logging.ERROR}
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
def local(num_workers: int) -> Iterator[Client]:
    """Yields a client of workers on this machine. If the machine has GPUs, each of several workers
    sees one.

    Raises ValueError if the workers do not start.
    """
    gpus = visible_gpus() if num_workers > 1 else []
    here: Json = {"host": "127.0.0.1"}
    options = here | QUIET | {"nthreads": 1, "memory_limit": 0}
    envs = [
        {"CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} if gpus else {} for i in range(num_workers)
    ]
    workers = {i: {"cls": Nanny, "options": options | {"env": env}} for i, env in enumerate(envs)}
    options = here | {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    scheduler = {"cls": Scheduler, "options": options}
    with config.set(SETTINGS), ExitStack() as stack:
        # Only this process handles Ctrl-C, and it ends the others, which inherit the blocked
        # signal. The tracker is started first, since it unblocks the signal when it starts.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            cluster = stack.enter_context(SpecCluster(workers, scheduler, **QUIET))
        except RuntimeError as error:
            raise ValueError(f"a worker did not start ({error}); try again") from None
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        try:
            yield stack.enter_context(Client(cluster))
        except KeyboardInterrupt:
            # Dask would wait for the workers' units and restart killed workers. The processes of a
            # worker end with it.
            for nanny in cluster.workers.values():
                nanny.close_gracefully()
                with suppress(ProcessLookupError, TypeError):  # it has ended, or not started
                    os.kill(nanny.pid, signal.SIGKILL)
            raise


@contextmanager
def slurm(num_workers: int) -> Iterator[Client]:
    """Yields a client of workers that are jobs of Slurm, one process each. Their settings
    (``jobqueue.slurm.queue``, ...) come from Dask's configuration files.

    Raises ValueError if Slurm's commands or settings are missing.
    """
    if not shutil.which("sbatch"):
        raise ValueError("--cluster slurm: no command sbatch; run this where jobs are submitted")
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    import dask_jobqueue

    signal.signal(signal.SIGINT, on_ctrl_c)  # the import has set a handler that exits with 0
    settings = config.get("jobqueue.slurm")
    if not (settings["cores"] and settings["memory"]):
        raise ValueError(
            "--cluster slurm: jobqueue.slurm.cores and jobqueue.slurm.memory are not set; set them "
            "in ~/.config/dask/jobqueue.yaml (see docs/scaling.md)"
        )
    jobs: Json = {"processes": 1, "log_directory": str(LOGS)}
    # Else a worker would run a unit for each core of its job at once.
    jobs["worker_extra_args"] = [*settings["worker-extra-args"], "--nthreads", "1"]
    with config.set(SETTINGS), dask_jobqueue.SLURMCluster(**jobs, **QUIET) as cluster:
        cluster.scale(num_workers)
        with Client(cluster) as client:
            yield client


@contextmanager
def running(address: str) -> Iterator[Client]:
    """Yields a client of a running scheduler, whose workers must share this folder.

    Raises ValueError if the scheduler does not answer.
    """
    try:
        client = Client(address, timeout=PATIENCE_S)
    except (OSError, ValueError):
        raise ValueError(
            f"--scheduler {address}: no scheduler answers there; start one by `dask scheduler` "
            f"and workers in this folder by `dask worker {address} --nthreads 1`"
        ) from None
    with client:
        yield client
