"""The rank of this process among the processes of one training."""

import os
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Rank:
    """The rank of a process in one training, in the terms of ``torch.distributed``."""

    rank: int
    num_ranks: int
    local_rank: int  # on its node


def rank_of_process() -> Rank | None:
    """Returns the rank from the variables of torchrun or of SLURM's srun; None without them.

    Under srun this also sets the variables that torch reads and srun does not set, unless they are
    set already: the address of the first node, and a port derived from the number of the job.

    A process of a SLURM job that srun has not started (the job's own script, or a worker of a
    scheduler) has no rank.
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
    """Returns the first node of a list in SLURM's form: ``gpu003`` for ``gpu[003-007,12],login1``;
    this machine if the list is empty."""
    match = re.match(r"([^,\[]*)(?:\[([^],-]*)[^]]*\]([^,\[]*))?", nodes)
    return "".join(part or "" for part in match.groups()) if match and nodes else "localhost"
