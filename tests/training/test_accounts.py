"""What a pretraining writes about itself."""

import csv
from pathlib import Path
from typing import Any

import pytest

from stages.core.params import Run
from stages.training import accounts
from stages.training.accounts import account_of, timing, write_history
from stages.training.device import Device
from stages.training.loop import Step
from stages.training.meter import Meter, Usage
from tests.small import small_model, small_schedule

PARENT = {"lineage_tokens": 7, "lineage_flops": 70}
STEP_TOKENS = 4 * 8


def run_of(num_steps: int, *, model: str = "encoder") -> Run:
    training = small_schedule(rows=4, max_tokens=8, num_steps=num_steps, lr=1e-3)
    names = {"corpus": "prose", "tokenizer": "unigram", "parent": "none", "seed": 1}
    component: dict[str, Any] = {"model": {"name": model}, "objective": {"name": "mlm"}}
    return Run(training=training, **names, **component)


def history_of(num_steps: int, *, validated: tuple[int, ...]) -> list[Step]:
    losses = {step: 1.0 + step for step in validated}
    return [Step(s, 1 / s, 0.1, 10, losses.get(s)) for s in range(1, num_steps + 1)]


def test_work_is_that_of_all_steps_and_a_lineage_adds_its_parent() -> None:
    model, history = small_model("encoder"), history_of(3, validated=(2, 3))
    account = account_of(model, run_of(3), history, PARENT)
    assert 0 < account["num_embedding_params"] < account["num_params"]
    work = {key: account[key] for key in list(account)[2:]}
    assert work == {
        "pretrain_tokens": 3 * STEP_TOKENS,
        "pretrain_flops": 30,
        "train_loss": pytest.approx(1 / 3),
        "validation_loss": 4.0,
        "lineage_tokens": 3 * STEP_TOKENS + 7,
        "lineage_flops": 100,
    }


def test_what_others_trained_is_unknown_and_what_nobody_trained_is_nothing() -> None:
    model = small_model("encoder")
    amounts = ("pretrain_tokens", "pretrain_flops", "lineage_tokens", "lineage_flops")
    for name, expected in (("hub", None), ("encoder", 0)):
        account = account_of(model, run_of(3, model=name), [], None)
        assert [account[key] for key in amounts] == [expected] * 4
    further = account_of(model, run_of(3, model="hub"), history_of(3, validated=(3,)), None)
    assert [further[key] for key in amounts] == [3 * STEP_TOKENS, 30, None, None]


def test_a_long_history_keeps_some_rows_and_each_validation_loss(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(accounts, "HISTORY_ROWS", 3)
    write_history(tmp_path / "history.csv", history_of(9, validated=(4, 9)), run_of(9))
    with Path(tmp_path / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [3, 4, 6, 9]
    assert [int(row["flops"]) for row in rows] == [30, 40, 60, 90]
    assert [int(row["tokens"]) for row in rows] == [n * STEP_TOKENS for n in (3, 4, 6, 9)]
    assert [row["validation_loss"] for row in rows] == ["", "5.0", "", "10.0"]


def test_usage_of_interrupted_processes_is_in_proportion(monkeypatch) -> None:
    device = Device("cpu", "float32", compile=False, threads=1)
    meter, usage = Meter(device), Usage(2.0, 1.5, peak_memory_bytes=5, gpu_energy_j=8.0)
    monkeypatch.setattr(meter, "read", lambda: usage)
    found = timing(6.0, meter, {"pretrain_tokens": 90}, device)
    assert (found["wall_time_s"], found["processor_time_s"]) == (6.0, 4.5)
    assert (found["gpu_energy_j"], found["tokens_per_s"]) == (24.0, 15.0)
    assert found["peak_memory_bytes"] == 5
    assert timing(6.0, meter, {"pretrain_tokens": None}, device)["tokens_per_s"] == 0
