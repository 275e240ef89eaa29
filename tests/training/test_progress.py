"""The progress line of a training."""

import io
import sys
from typing import Any

import pytest
import torch

from stages.training.device import Device
from stages.training.loop import train
from stages.training.progress import line, peak_flops
from tests.small import headless, small_model
from tests.training.test_loop import CPU, SCHEDULE, data_of, objective_of

NUMBERS: dict[str, Any] = {
    "done": 19_999,
    "num_steps": 20_000,
    "loss": 12.3456,
    "gradient_norm": 123.456,
    "tokens_per_s": 1_234_567.0,
    "utilisation": 0.412,
    "seconds_left": 36_000.0,
    "width": 80,
}


def test_line_has_all_numbers_in_80_columns() -> None:
    shown = line("pretrain encoder_mlm_scientific seed 1 at 0.0003", **NUMBERS)
    assert len(shown) == 80
    numbers = "19999/20000 loss 12.346 norm 123.46 1.23M tok/s MFU 41% 10:00:00 left"
    assert shown == f"pretrain … {numbers}"
    assert line("short", **NUMBERS | {"width": 100, "utilisation": None}) == (
        f"short {numbers.replace('MFU 41% ', '')}"
    )


def test_peak_flops_is_that_of_the_card_if_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    half = Device("cuda", "bfloat16", compile=False, threads=1)
    names = ["NVIDIA H100 PCIe", "NVIDIA H100 80GB HBM3", "A card of next year"]
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: names.pop(0))
    assert [peak_flops(half) for _ in range(3)] == [756e12, 989e12, None]
    assert peak_flops(CPU) is None


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_train_shows_its_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("COLUMNS", "80")
    steps = train(
        headless(small_model("encoder")),
        objective_of("mlm"),
        data_of("mlm"),
        SCHEDULE,
        num_steps=3,
        seed=1,
        device=CPU,
        description="pretrain encoder_mlm seed 1",
    )
    last = [*steps][-1]
    shown = terminal.getvalue().split("\r")[-1].strip()
    assert shown.startswith(f"pretrain encoder_mlm seed 1 3/3 loss {last.loss:.3f} norm ")
    assert shown.endswith("tok/s 00:00 left") and len(shown) < 80
