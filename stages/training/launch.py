"""Starts the processes of one training on this machine.

The processes find each other through the environment variables that torchrun sets. torchrun itself
is not used: it reports a user's mistake as its own failure, with its status and a page of text.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from torch.distributed import TCPStore

from stages.core.ending import die_with_parent, held_signals
from stages.core.params import Compute, Distributed
from stages.core.rank import rank_of_process
from stages.training.ranks import too_few_threads

POLL_S = 0.05


def rank_to_run(compute: Compute, distributed: Distributed, *, trains: bool) -> int | None:
    """Returns the rank that this process has to run as, or None if it has nothing to run: it has
    started the ranks and they have ended well, or nothing trains and it is not the first rank.

    Raises ValueError with the path in params.yaml for missing devices or processes that cannot be
    started here, and SystemExit with the status of a rank that has failed.
    """
    place = rank_of_process()
    if place is not None:
        if place.num_ranks != distributed.num_ranks:
            raise ValueError(
                f"distributed: devices {distributed.devices} x num_nodes {distributed.num_nodes} "
                f"are {distributed.num_ranks} processes, and {place.num_ranks} were started"
            )
        return place.rank if trains or place.rank == 0 else None
    if distributed.num_ranks == 1 or not trains:
        return 0
    if distributed.num_nodes > 1:
        command = " ".join(sys.orig_argv[1:3])
        raise ValueError(
            f"distributed.num_nodes: a process of its own starts on each node: `srun --nodes "
            f"{distributed.num_nodes} --ntasks-per-node {distributed.devices} python {command} RUN`"
            f", or on each `torchrun --nnodes {distributed.num_nodes} --nproc-per-node "
            f"{distributed.devices} --rdzv-backend c10d --rdzv-endpoint FIRST_NODE {command} RUN`"
        )
    if reason := too_many(compute, distributed):
        raise ValueError(f"distributed.devices: {reason}")
    if status := _run_ranks(distributed.devices):
        raise SystemExit(status)
    return None


def too_many(compute: Compute, distributed: Distributed) -> str | None:
    """Returns why this machine has too few devices; None if it has enough."""
    if compute.device != "cpu" and torch.cuda.is_available():
        count = torch.cuda.device_count()
        return f"there are {count} GPUs here" if distributed.devices > count else None
    return too_few_threads(compute, distributed)


def _run_ranks(number: int) -> int:
    """Starts this command as ``number`` ranks and waits for them; returns the exit status. No rank
    outlives this process, or the first rank that fails. A signal is passed on to the ranks, which
    then save their training."""
    # The store takes a free port before the ranks are told its number.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with held_signals() as came, tempfile.TemporaryDirectory() as folder:
        # Unless they fail, other ranks only repeat the first one's messages, so theirs go to files.
        logs = [Path(folder, f"{rank}.log") for rank in range(number)]
        ranks: list[subprocess.Popen[bytes]] = []
        try:
            for rank, log in enumerate(logs):
                with log.open("wb") as file:
                    ranks.append(
                        subprocess.Popen(
                            [sys.executable, *sys.orig_argv[1:]],
                            env=_environment(rank, number, store.port),
                            stderr=None if rank == 0 else file,
                            preexec_fn=partial(die_with_parent, os.getpid()),
                        )
                    )
            failed = _first_failure(ranks, came)
        finally:
            for process in ranks:
                process.kill()
                process.wait()
        if failed is None:
            return 0
        if failed:
            sys.stderr.write(logs[failed].read_text(errors="replace"))
        status = ranks[failed].returncode
        if status < 0:
            name = signal.Signals(-status).name
            print(f"error: process {failed} of {number} was ended by {name}", file=sys.stderr)
            return 128 - status
        return status


def _environment(rank: int, number: int, port: int) -> dict[str, str]:
    """Returns the environment that torchrun would set for a rank. The ranks use the store of this
    process."""
    variables = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": number,
        "LOCAL_WORLD_SIZE": number,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "TORCHELASTIC_USE_AGENT_STORE": True,
    }
    # Ranks on one machine use its loopback interface, whatever address its name resolves to.
    loopback = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    return loopback | os.environ | {name: str(value) for name, value in variables.items()}


def _first_failure(ranks: Sequence[subprocess.Popen[bytes]], came: Sequence[int]) -> int | None:
    """Waits for the ranks; returns the first that ends with a status other than 0, or None if all
    end well. The ranks are terminated once ``came`` lists a signal to this process."""
    is_told = False
    while True:
        if came and not is_told:
            is_told = True
            for process in ranks:
                process.terminate()
        statuses = [process.poll() for process in ranks]
        for rank, status in enumerate(statuses):
            if status:
                return rank
        if all(status == 0 for status in statuses):
            return None
        time.sleep(POLL_S)
