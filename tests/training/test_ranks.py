"""Several processes train as one does: every objective, both strategies, and from saved states."""

import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from stages.core.params import Distributed
from stages.training.ranks import uneven
from tests.small import small_schedule
from tests.training.trained_by_ranks import (
    IN_BFLOAT16,
    RATES,
    STRATEGIES,
    Trained,
    cases,
    trained,
)

ROOT = Path(__file__).parents[2]
NUMBERS = (2, 4)
# Ranks sum in another order, and Adam divides by small numbers.
RELATIVE, ABSOLUTE = 1e-4, 2e-5


def ranks(number: int, folder: Path) -> list[subprocess.Popen[bytes]]:
    """Starts ``trained_by_ranks`` as torchrun would. The processes are no forks of ``warm_python``,
    because such a fork once ended with a segmentation fault."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    about = {"WORLD_SIZE": str(number), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    about["PYTHONFAULTHANDLER"] = "1"
    return [
        subprocess.Popen(
            [sys.executable, "-m", "tests.training.trained_by_ranks", folder],
            cwd=ROOT,
            env=os.environ | about | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(number)
    ]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Path]]:
    """Folders of what two ranks trained, and then four, which also resume a state of the two."""
    by_number = {}
    for number in NUMBERS:
        by_number[number] = tmp_path_factory.mktemp(f"ranks_{number}")
        if number > 2:
            shutil.copytree(by_number[2] / "stopped", by_number[number] / "earlier")
        started = ranks(number, by_number[number])
        try:
            assert [process.wait(timeout=600) for process in started] == [0] * number
        finally:
            for process in started:
                process.kill()
    yield by_number


def read(folder: Path, name: str) -> Trained:
    about = json.loads((folder / f"{name}.json").read_text())
    return Trained(about["losses"], load_file(folder / name), about["flops"])


def differs(one: Trained, other: Trained) -> str | None:
    """Returns where two results differ, or None."""
    assert one.weights.keys() == other.weights.keys()
    try:
        torch.testing.assert_close(one.losses, other.losses, rtol=RELATIVE, atol=ABSOLUTE)
        for name, weight in one.weights.items():
            torch.testing.assert_close(
                other.weights[name], weight, rtol=RELATIVE, atol=ABSOLUTE, msg=name
            )
    except AssertionError as error:
        return str(error)
    return None


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "architecture"), cases())
def test_train_of_several_ranks_equals_one_process(folders, objective, architecture) -> None:
    """Losses, weights and operations are equal, with dropout and clipped gradients."""
    alone = trained(objective, architecture)
    for number, strategy in itertools.product(NUMBERS, STRATEGIES):
        if (objective, architecture) in cases(number, strategy):
            by_ranks = read(folders[number], f"{strategy}-{objective}-{architecture}")
            assert differs(alone, by_ranks) is None, (number, strategy, differs(alone, by_ranks))
            assert by_ranks.flops == alone.flops


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_try_each_of_several_ranks_keeps_the_same_rate(folders, strategy, tmp_path) -> None:
    alone = trained("mlm", "encoder", rates=RATES, scratch=tmp_path)
    assert differs(alone, read(folders[2], f"{strategy}-tries")) is None


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_train_of_several_ranks_in_bfloat16_is_that_of_one_but_for_rounding(
    folders, strategy
) -> None:
    alone = trained("mlm", "encoder", device=IN_BFLOAT16)
    by_ranks = read(folders[2], f"{strategy}-bfloat16")
    assert by_ranks.losses == pytest.approx(alone.losses, rel=5e-3)
    assert by_ranks.flops == alone.flops


@pytest.mark.slow
def test_fsdp_gathers_linear_layers_alone_in_bfloat16(folders) -> None:
    types = json.loads((folders[2] / "types-0.json").read_text())
    linear = {name for name in types if "blocks" in name and "norm" not in name}
    assert {types[name] for name in linear} == {"torch.bfloat16"}
    assert {types[name] for name in types.keys() - linear} == {"torch.float32"}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_train_resumes_with_another_number_of_ranks(folders, strategy, tmp_path) -> None:
    earlier = tmp_path / "earlier"
    shutil.copytree(folders[2] / "stopped" / strategy, earlier)
    (state,) = earlier.rglob("*.safetensors")
    with safe_open(state, framework="pt") as file:
        assert json.loads(file.metadata()["record"])["step"] == 1
    alone = trained("causal", "decoder")
    assert differs(alone, read(folders[4], f"{strategy}-resumed")) is None
    resumed = trained("causal", "decoder", scratch=earlier)
    assert differs(alone, resumed) is None


@pytest.mark.parametrize(
    ("devices", "micro_batch_rows", "valid"),
    [(1, 8, None), (2, 4, None), (4, 2, None), (2, 8, "1, 2, 4"), (4, 4, "1, 2"), (3, 1, "3")],
)
def test_uneven_refuses_micro_batches_that_ranks_cannot_share(
    devices, micro_batch_rows, valid
) -> None:
    schedule = small_schedule(
        rows=8, max_tokens=32, num_steps=1, lr=1e-3, micro_batch_rows=micro_batch_rows
    )
    distributed = Distributed(devices=devices, num_nodes=1, strategy="ddp")
    reason = uneven(schedule, distributed)
    assert reason is None if valid is None else reason is not None and valid in reason
