"""What a machine offers: cores, GPUs and jobs at once; and data in parts that fit into memory."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from stages.core.params import Compute, Distributed

P = TypeVar("P")


def cores() -> int:
    """Returns the number of cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))  # a scheduler may allow only some
    return os.cpu_count() or 1


def visible_gpus() -> list[str]:
    """Returns the GPUs that this process may use. Does not use torch, which would occupy memory on
    each GPU."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in visible.split(",") if name]
    if not shutil.which("nvidia-smi"):
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    lines = listed.stdout.splitlines() if listed.returncode == 0 else []
    return [str(index) for index, line in enumerate(lines) if line.startswith("GPU ")]


def most_jobs(compute: Compute, distributed: Distributed) -> int:
    """Returns the largest number of jobs that share neither a GPU nor a core."""
    if compute.device != "cpu" and (gpus := visible_gpus()):
        return len(gpus) if distributed.devices == 1 else 1  # each of several jobs sees one GPU
    return max(cores() // compute.threads, 1)


def grouped(items: Iterable[P], size: Callable[[P], int], least: int) -> Iterator[list[P]]:
    """Yields groups of consecutive items. A group is complete when its sizes add up to at least
    ``least``; the last group may be smaller."""
    group: list[P] = []
    total = 0
    for item in items:
        group.append(item)
        total += size(item)
        if total >= least:
            yield group
            group, total = [], 0
    if group:
        yield group
