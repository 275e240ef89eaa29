"""What a pretraining writes about itself."""

import csv
import math
from pathlib import Path
from typing import Any

import pytest

from stages.core.params import Model
from stages.training import accounts
from stages.training.accounts import account_of, write_histories
from stages.training.loop import Step
from stages.training.tries import Try
from tests.small import small_model, small_schedule

PARENT = {"lineage_tokens": 7, "lineage_flops": 70, "lineage_bytes": 21}
STEP_TOKENS = 4 * 8


def run_of(num_steps: int, *, model: str = "modernbert") -> Model:
    training = small_schedule(rows=4, max_tokens=8, num_steps=num_steps, lr=1e-3)
    names = {"corpus": "prose", "tokenizer": "unigram", "parent": "none"}
    component: dict[str, Any] = {"architecture": {"name": model}, "objective": {"name": "mlm"}}
    return Model(training=training, seeds=[1], **names, **component)


def history_of(num_steps: int, *, validated: tuple[int, ...]) -> list[Step]:
    losses = {step: 1.0 + step for step in validated}
    return [Step(s, 1 / s, 0.1, 10, losses.get(s)) for s in range(1, num_steps + 1)]


def test_account_of_adds_the_parent_to_the_lineage() -> None:
    model, history = small_model("encoder"), history_of(3, validated=(2, 3))
    account = account_of(model, run_of(3), [Try(0.1, history)], PARENT, bytes_per_token=3.5)
    assert 0 < account["num_embedding_params"] < account["num_params"]
    work = {key: account[key] for key in list(account)[2:]}
    assert work == {
        "pretrain_tokens": 3 * STEP_TOKENS,
        "tokens_of_all_rates": 3 * STEP_TOKENS,
        "pretrain_flops": 30,
        "flops_of_kept_rate": 30,
        "train_loss": pytest.approx(1 / 3),
        "validation_loss": 4.0,
        "lr": 0.1,
        "rates": {"0.1": 4.0},
        "pretrain_bytes": 3.5 * 3 * STEP_TOKENS,
        "lineage_tokens": 3 * STEP_TOKENS + 7,
        "lineage_flops": 100,
        "lineage_bytes": 3.5 * 3 * STEP_TOKENS + 21,
    }


def test_account_of_several_rates_has_the_work_of_all() -> None:
    """A rate that diverged counts with its steps until it diverged."""
    diverged = [Step(1, 9.0, 0.4, 10, None), Step(2, math.nan, 0.4, 10, None)]
    of_rates = {
        0.4: diverged,
        0.1: history_of(3, validated=(2, 3)),
        0.2: history_of(3, validated=(3,)),
    }
    tries = [Try(rate, history) for rate, history in of_rates.items()]
    account = account_of(small_model("encoder"), run_of(3), tries, PARENT, bytes_per_token=1.0)
    assert account["lr"] == 0.1  # the first of two rates with equal losses
    assert account["rates"] == {"0.4": None, "0.1": 4.0, "0.2": 4.0}
    assert account["pretrain_tokens"] == 3 * STEP_TOKENS
    assert account["tokens_of_all_rates"] == 8 * STEP_TOKENS
    assert (account["pretrain_flops"], account["flops_of_kept_rate"]) == (80, 30)
    assert account["lineage_flops"] == 150 and account["lineage_tokens"] == 3 * STEP_TOKENS + 7


def test_account_of_a_public_checkpoint_is_unknown() -> None:
    model = small_model("encoder")
    amounts = [f"{of}_{each}" for of in ("pretrain", "lineage") for each in accounts.LINEAGE]
    for name, expected in (("hub", None), ("encoder", 0)):
        account = account_of(model, run_of(3, model=name), [], None, bytes_per_token=0.0)
        assert [account[key] for key in amounts] == [expected] * 6
    tries = [Try(0.1, history_of(3, validated=(3,)))]
    continued = account_of(model, run_of(3, model="hub"), tries, None, bytes_per_token=2.0)
    seen = [3 * STEP_TOKENS, 30, 6 * STEP_TOKENS]
    assert [continued[key] for key in amounts] == [*seen, None, None, None]


def test_write_histories_keeps_some_rows_and_each_validation_loss(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(accounts, "HISTORY_ROWS", 3)
    tries = [Try(0.2, history_of(9, validated=(9,))), Try(0.1, history_of(9, validated=(4, 9)))]
    tries[0].history[-1].validation_loss = 11.0
    write_histories(tmp_path, tries, run_of(9))
    with Path(tmp_path / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    steps = [1, 3, 4, 6, 9]
    assert [int(row["step"]) for row in rows] == steps
    assert [int(row["flops"]) for row in rows] == [10 * step for step in steps]
    assert [int(row["tokens"]) for row in rows] == [step * STEP_TOKENS for step in steps]
    assert [row["validation_loss"] for row in rows] == ["", "", "5.0", "", "10.0"]
    with Path(tmp_path / "rates.csv").open() as file:
        rates = [(row["rate"], row["kept"]) for row in csv.DictReader(file)]
    assert rates == [("0.2", "0")] * 4 + [("0.1", "1")] * 5
