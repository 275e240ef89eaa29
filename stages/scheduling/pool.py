"""The workers of a study: on this machine, as jobs of Slurm, or at a running scheduler."""

import logging
import multiprocessing
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
from typing import Any

from dask import config
from distributed import Client, Nanny, Scheduler, SpecCluster

from stages.core import paths
from stages.core.artifacts import Json
from stages.core.parallel import visible_gpus
from stages.scheduling.unit import LOGS

MAX_RETRIES = 2  # retries of a unit whose worker died
PATIENCE_S = 20  # time for a scheduler to answer
QUIET: Json = {"silence_logs": logging.ERROR}
# Workers start processes, which daemon processes may not.
NO_DAEMON = "export DASK_DISTRIBUTED__WORKER__DAEMON=False"


@contextmanager
def local(num_workers: int) -> Iterator[Client]:
    """Yields a client of workers on this machine. If the machine has GPUs, each of several workers
    sees one.

    Raises ValueError if the workers do not start.
    """
    gpus = visible_gpus() if num_workers > 1 else []
    workers = {}
    for index in range(num_workers):
        env = {"CUDA_VISIBLE_DEVICES": gpus[index % len(gpus)]} if gpus else {}
        options = QUIET | {"nthreads": 1, "memory_limit": 0, "env": env, "host": "127.0.0.1"}
        workers[index] = {"cls": Nanny, "options": options}
    options = {"dashboard": False, "dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}
    scheduler = {"cls": Scheduler, "options": options}
    with _settings(), ExitStack() as stack:
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
            pids = {nanny.pid for nanny in cluster.workers.values()}
            for nanny in cluster.workers.values():
                nanny.close_gracefully()
            for worker in multiprocessing.active_children():
                if worker.pid in pids:  # not those of another cluster, which would be restarted
                    worker.kill()
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
    with _settings():
        settings: Any = config.get("jobqueue.slurm")
        for name in ("cores", "memory"):
            if not settings.get(name):
                raise ValueError(
                    f"--cluster slurm: jobqueue.slurm.{name} is not set; set it in "
                    "~/.config/dask/jobqueue.yaml (see docs/scaling.md)"
                )
        prologue = [*settings["job-script-prologue"], NO_DAEMON]
        jobs = {"processes": 1, "job_script_prologue": prologue, "log_directory": str(LOGS)}
        with dask_jobqueue.SLURMCluster(**jobs, **QUIET) as cluster, Client(cluster) as client:
            cluster.scale(num_workers)
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


def _settings() -> config.set:
    return config.set(
        {
            "distributed.scheduler.allowed-failures": MAX_RETRIES,
            "distributed.scheduler.worker-saturation": 1.0,  # any worker may take a waiting unit
            "distributed.worker.daemon": False,
            "distributed.nanny.pre-spawn-environ": {},
            # Workers only wait for processes: no profiles and no short ticks.
            "distributed.worker.profile.enabled": False,
            "distributed.admin.tick.interval": "1s",
            "temporary-directory": str((paths.SCRATCH / "dask").absolute()),
        }
    )
