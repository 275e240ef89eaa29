"""Training on a CUDA device that needs no GPU (``fake_cuda.py``): nothing is on a wrong device, and
the host waits for the device once a step, but for places that are listed here."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from stages.training.loop import mean_loss
from tests.training.trained_by_ranks import CPU, MICRO_ROWS, ROWS, built, cases

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has CUDA"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler of C++"),
]

SOURCE = Path(__file__).with_name("fake_cuda.cpp")
READS_LOSS = "training/loop.py _values"  # once a step
NEW_LENGTH = "models/_attention.py rotation"  # two tables for each length that is met first
# Waits in a micro-batch: positions with a label, and how long documents are.
OF_MICRO_BATCH: dict[str, dict[str, int]] = {
    "bidirectional_lm": {
        "models/bilstm.py _Order.of": 6,
        "objectives/bidirectional_lm.py BidirectionalLM.loss": 4,
        "training/loop.py add_gradients": 2,
    },
    "multi_task": {
        "objectives/multi_task.py MultiTask.loss": 2,
        "training/loop.py add_gradients": 1,
    },
}


def library(folder: Path) -> Path:
    path = folder / "fake_cuda.so"
    home = Path(torch.__file__).parent
    flags = ["-shared", "-fPIC", "-std=c++20", f"-I{home / 'include'}", f"-L{home / 'lib'}"]
    flags += ["-ltorch_cpu", "-lc10", f"-Wl,-rpath,{home / 'lib'}"]
    subprocess.run(["g++", SOURCE, "-o", path, *flags], check=True)
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    environ = os.environ | {"LD_PRELOAD": str(library(tmp_path_factory.mktemp("fake_cuda")))}
    command = [sys.executable, "-m", "tests.fake_cuda"]
    root = Path(__file__).parents[1]
    printed = subprocess.run(command, env=environ, cwd=root, check=True, capture_output=True)
    return json.loads(printed.stdout)


def test_fake_cuda_refuses_tensors_of_two_devices(trained: dict[str, Any]) -> None:
    assert trained["two devices"].startswith("Expected all tensors to be on the same device")


@pytest.mark.parametrize(("name", "architecture"), cases())
def test_a_step_is_on_one_device_and_waits_once(
    trained: dict[str, Any], name: str, architecture: str
) -> None:
    result = trained[f"{name} {architecture}"]
    assert "error" not in result, result["error"]
    micro_batches = OF_MICRO_BATCH.get(name, {})
    for of in ("step", "validation"):
        waits = result[of] | {NEW_LENGTH: result[of].get(NEW_LENGTH, 0) % 2}
        assert waits.pop(READS_LOSS) == 1
        assert waits.pop(NEW_LENGTH) == 0
        assert waits.keys() <= micro_batches.keys()
        for place, number in waits.items():
            assert number <= micro_batches[place] * ROWS // MICRO_ROWS, place


@pytest.mark.parametrize(("name", "architecture"), cases())
def test_losses_are_those_of_the_cpu(trained: dict[str, Any], name: str, architecture: str) -> None:
    """In float32, and but for rounding in bfloat16, by the code that CUDA alone takes: attention
    within documents, for one."""
    objective, model, data = built(name, architecture)
    right = mean_loss(model, objective, data.micro_batches(9), CPU)
    losses = trained[f"{name} {architecture}"]
    assert losses["at first"] == pytest.approx(right, rel=1e-5)
    assert losses["in half"] == pytest.approx(right, rel=1e-2)
