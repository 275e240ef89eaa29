"""What a machine offers: cores, GPUs and jobs at once, and the environment of a training."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from stages.core.params import Compute, Distributed
from stages.core.study_file import read_yaml

PIPELINE = Path("dvc.yaml")


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


def training_environment() -> dict[str, str]:
    """Returns the variables that dvc.yaml sets for processes that train, or {} if there is no
    dvc.yaml. They determine how memory is allocated and how threads wait, and a process reads them
    only when it starts."""
    if not PIPELINE.is_file():
        return {}
    [command] = [var["torch"] for var in read_yaml(PIPELINE)["vars"] if "torch" in var]
    return dict(word.split("=", 1) for word in command.split() if "=" in word)
