"""Which of several processes of one training this one is."""

import os
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Rank:
    """The place of a process among those of one training, in the words of ``torch.distributed``."""

    rank: int
    num_ranks: int
    local_rank: int  # on its node


def rank_of_process() -> Rank | None:
    """From the variables that torchrun or SLURM's srun sets; None if neither has started it.

    Under srun it also sets those that torch reads and that srun does not know: the address of the
    first node and a port that follows from the number of the job, unless they are set.

    A process of a SLURM job that srun has not started is no rank: a job's own script, or a worker
    of a scheduler.
    """
    variables = os.environ
    if "RANK" in variables and "WORLD_SIZE" in variables:
        rank = int(variables["RANK"])
        return Rank(rank, int(variables["WORLD_SIZE"]), int(variables.get("LOCAL_RANK", rank)))
    number = int(variables.get("SLURM_STEP_NUM_TASKS", "1"))
    if number == 1 or "SLURM_PROCID" not in variables:
        return None
    job, step = (int(variables.get(f"SLURM_{name}_ID", "0")) for name in ("JOB", "STEP"))
    nodes = variables.get("SLURM_STEP_NODELIST", variables.get("SLURM_JOB_NODELIST", ""))
    variables.setdefault("MASTER_ADDR", first_node(nodes))
    variables.setdefault("MASTER_PORT", str(20_000 + (10 * job + step) % 10_000))
    return Rank(int(variables["SLURM_PROCID"]), number, int(variables.get("SLURM_LOCALID", "0")))


def first_node(nodes: str) -> str:
    """Of a list as SLURM writes it: ``gpu[003-007,12],login1`` begins with ``gpu003``; this machine
    if the list is empty."""
    found = re.match(r"([^,\[]*)(?:\[([^],-]*)[^]]*\]([^,\[]*))?", nodes)
    return "".join(part or "" for part in found.groups()) if found and nodes else "localhost"
