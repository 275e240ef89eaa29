"""Training on a CUDA device that needs no GPU (``fake_cuda.py``): nothing is on a wrong device, the
host waits for the device once a step, and kernels and shapes are few."""

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
from tests.fake_cuda import SHAPES
from tests.training.trained_by_ranks import CPU, built, cases

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has CUDA"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler of C++"),
]

SOURCE = Path(__file__).with_name("fake_cuda.cpp")
READS_LOSS = "training/loop.py _values"  # once a step
NEW_LENGTH = "models/_attention.py rotation"  # two tables for each new length


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
    for of in ("step", "validation"):
        waits = result[of] | {NEW_LENGTH: result[of].get(NEW_LENGTH, 0) % 2}
        assert waits.pop(READS_LOSS) == 1
        assert waits.pop(NEW_LENGTH) == 0
        assert not waits


@pytest.mark.parametrize(("name", "architecture"), cases())
def test_losses_are_those_of_the_cpu(trained: dict[str, Any], name: str, architecture: str) -> None:
    """Losses are equal in float32, and but for rounding in bfloat16, although some code runs on
    CUDA alone, such as attention within documents."""
    objective, model, data = built(name, architecture)
    right = mean_loss(model, objective, data.micro_batches(9), CPU)
    losses = trained[f"{name} {architecture}"]
    assert losses["at first"] == pytest.approx(right, rel=1e-5)
    assert losses["in half"] == pytest.approx(right, rel=1e-2)


def test_micro_batch_without_targets_has_no_loss(trained: dict[str, Any]) -> None:
    assert trained["without targets"] == 0


def test_a_step_of_a_decoder_starts_few_kernels(trained: dict[str, Any]) -> None:
    """At most 80 a layer and 63 others start; an operation on a list of tensors counts as one."""
    of_one, of_two, of_three = (sum(counts.values()) for counts in trained["kernels"])
    assert of_three - of_two == of_two - of_one <= 80
    assert of_one - (of_two - of_one) <= 63


@pytest.mark.parametrize("case", [f"{name} {architecture}" for name, architecture in SHAPES])
def test_batches_of_an_epoch_have_few_shapes(trained: dict[str, Any], case: str) -> None:
    """Texts have 4 to 160 tokens, so that widths are 64, 128 and 160."""
    (_, exact), (pretraining, finetuning) = trained["shapes"][case]
    assert pretraining == 1
    assert finetuning <= 6 < exact / 3


def test_the_bias_of_relative_positions_is_cast_once_for_all_layers(
    trained: dict[str, Any],
) -> None:
    """If each layer cast the bias and its gradient, it would start 85 kernels."""
    of_one, of_two = (sum(counts.values()) for counts in trained["relative"])
    assert of_two - of_one <= 83
