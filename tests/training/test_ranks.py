"""Two processes that torchrun starts train as one does, with both strategies."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from stages.core.params import Distributed
from stages.training import ranks
from stages.training.ranks import uneven
from tests.small import small_schedule
from tests.training.trained_by_ranks import STRATEGIES, TRAINED, Trained, trained

ROOT = Path(__file__).parents[2]
# Ranks sum in another order, and Adam divides by small numbers.
RELATIVE, ABSOLUTE = 1e-4, 2e-5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what two ranks trained."""
    path = tmp_path_factory.mktemp("ranks")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, "-m", "tests.training.trained_by_ranks", path]
    subprocess.run(command, cwd=ROOT, check=True, timeout=600)
    return path


def differ(folder: Path, name: str, alone: Trained) -> None:
    """Raises AssertionError if the result in a file differs from that of one process."""
    about = json.loads((folder / f"{name}.json").read_text())
    assert about["losses"] == pytest.approx(alone.losses, rel=RELATIVE)
    assert about["flops"] == alone.flops
    weights = load_file(folder / f"{name}.safetensors")
    torch.testing.assert_close(weights, alone.weights, rtol=RELATIVE, atol=ABSOLUTE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "case"), [*itertools.product(STRATEGIES, TRAINED)], ids=lambda each: str(each)
)
def test_train_of_two_ranks_equals_one_process(
    folder: Path, strategy: str, case: tuple[str, str]
) -> None:
    """Losses, weights and operations are equal, with dropout and clipped gradients."""
    differ(folder, f"{strategy}-{case[1]}", trained(*case))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_train_resumes_with_the_same_or_another_number_of_ranks(
    folder: Path, strategy: str
) -> None:
    differ(folder, f"{strategy}-resumed", trained("causal", "decoder"))
    alone = trained("mlm", "encoder")
    resumed = trained("mlm", "encoder", scratch=folder / strategy)
    assert resumed.losses == pytest.approx(alone.losses, rel=RELATIVE)


def test_start_ranks_leaves_several_nodes_to_the_user() -> None:
    with pytest.raises(ValueError, match=r"^distributed\.num_nodes: .*torchrun --nnodes 2"):
        ranks.start_ranks(Distributed(num_nodes=2))


@pytest.mark.parametrize(
    ("devices", "micro_batch_rows", "fits"),
    [(1, 8, True), (2, 4, True), (4, 2, True), (2, 8, False), (4, 4, False), (3, 1, False)],
)
def test_uneven_refuses_micro_batches_that_ranks_cannot_share(
    devices: int, micro_batch_rows: int, fits: bool
) -> None:
    sizes = {"rows": 8, "max_tokens": 32, "micro_batch_rows": micro_batch_rows}
    schedule = small_schedule(**sizes, num_steps=1, lr=1e-3)
    assert (uneven(schedule, Distributed(devices=devices)) is None) == fits
