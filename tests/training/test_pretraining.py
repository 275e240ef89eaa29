"""Pretraining: its output bias begins with the frequencies of targets; samples of what a model
writes; accounts, and operations that are counted as by hand."""

import csv
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from stages.core.params import Model
from stages.core.seeding import torch_stream
from stages.models._heads import ModelWithHead, initialise_head
from stages.objectives._objective import OBJECTIVES
from stages.tasks.classification import Classification
from stages.text.batch import IGNORE_INDEX
from stages.text.packing import Packing
from stages.text.tokenizer import BOS_ID
from stages.training import accounts, flops
from stages.training.accounts import account_of, write_histories
from stages.training.flops import StepFlops, counting
from stages.training.loop import Step, add_gradients, mean_loss
from stages.training.meter import Usage
from stages.training.pretraining import PretrainingData, begin_with_frequencies
from stages.training.samples import beginnings, samples
from stages.training.tries import Try
from tests.small import (
    VOCAB_SIZE,
    documents,
    small_corpus,
    small_model,
    small_schedule,
    small_tokenizer,
    with_head,
)
from tests.training.test_loop import CPU

pytestmark = pytest.mark.usefixtures("one_thread")


def objective_of(name: str, max_tokens: int, **settings: Any) -> Any:
    entry = {"name": name, **settings}
    return OBJECTIVES.build(entry, small_tokenizer(), max_tokens, where="objective")


def data_of(objective: Any) -> PretrainingData:
    packing = Packing(small_corpus(), 64, seed=1)
    return PretrainingData(packing, objective, batch_rows=8, micro_batch_rows=8, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("modernbert", "mlm"),
        ("phi", "causal"),
        ("phi", "prefix_lm"),
        ("bart", "denoising"),
        ("bilstm", "bidirectional_lm"),
    ],
)
def test_begin_with_frequencies_gives_the_entropy_of_targets_as_first_loss(
    family: str, name: str
) -> None:
    """Before the bias is set the loss is that of guessing."""
    objective = objective_of(name, 64)
    data = data_of(objective)
    batches = [batch for step in range(40) for batch in data.micro_batches(step)]
    targets = torch.cat([batch.labels.flatten() for batch in batches if batch.labels is not None])
    shares = torch.bincount(targets[targets != IGNORE_INDEX]).double()
    shares = shares[shares > 0] / shares.sum()
    entropy, guessing = float(-(shares * shares.log()).sum()), float(torch.tensor(VOCAB_SIZE).log())
    assert entropy < 0.9 * guessing

    backbone = small_model(family)
    model = ModelWithHead(backbone, objective.head(backbone))
    initialise_head(model.head, generator=torch_stream(1, "head"))
    before = mean_loss(model, objective, batches, CPU)
    begin_with_frequencies(backbone, data, num_steps=40)
    after = mean_loss(model, objective, batches, CPU)
    assert before == pytest.approx(guessing, rel=0.15)
    assert after - entropy < 0.2 * (guessing - entropy) + (before - guessing)


def test_begin_with_frequencies_keeps_a_bias_that_was_learnt_and_needs_one() -> None:
    """Continued pretraining begins with the parent's bias."""
    data, learnt = data_of(objective_of("causal", 64)), small_model("phi")
    with torch.no_grad():
        learnt.logit_bias[7] = 1.5
    for backbone in (learnt, small_model("gpt2"), small_model("t5")):
        weights = {name: weight.clone() for name, weight in backbone.state_dict().items()}
        begin_with_frequencies(backbone, data, num_steps=2)
        torch.testing.assert_close(backbone.state_dict(), weights, atol=0.0, rtol=0.0)


# Samples -----------------------------------------------------------------------------------------

MAX_TOKENS = 32
GENERATIVE = (
    ("causal", "decoder"),
    ("prefix_lm", "decoder"),
    ("span_corruption", "encoder_decoder"),
    ("multi_task", "decoder"),
)


def written(objective: str, architecture: str, *, seed: int = 1, **settings: Any) -> list[dict]:
    """The samples of a model of random weights."""
    made = objective_of(objective, MAX_TOKENS, **settings)
    made.architecture = architecture
    model = small_model(architecture, seed=seed)
    return samples(model, made, small_corpus(), small_tokenizer(), CPU)


@pytest.mark.parametrize(("objective", "architecture"), GENERATIVE)
def test_samples_have_equal_passages_and_prompts_for_every_model(objective, architecture) -> None:
    """Equal weights write equal text; passages are beginnings of texts."""
    one, *others = (written(objective, architecture, seed=seed) for seed in range(1, 6))
    other = next(each for each in others if each != one)  # models that write nothing are equal
    assert one == written(objective, architecture, seed=1)
    for sample, again in zip(one, other, strict=True):
        assert (sample["passage"], sample["prompt"]) == (again["passage"], again["prompt"])
    rows = beginnings(small_corpus(), MAX_TOKENS)
    assert all(row.tokens[0] == BOS_ID and len(row.tokens) <= MAX_TOKENS for row in rows)
    passages = [small_tokenizer().shown(row.tokens) for row in rows]
    assert [sample["passage"] for sample in one if sample["passage"]] == passages
    texts = {" ".join(document) for document in documents()}
    assert all(any(text.startswith(passage) for text in texts) for passage in passages)


def test_prompts_are_the_beginning_or_leave_something_out() -> None:
    """A decoder also continues nothing; an encoder without a decoder writes nothing."""
    for objective in ("causal", "prefix_lm"):
        first, *others = written(objective, "decoder")
        assert (first["passage"], first["prompt"]) == ("", "")
        for sample in others:
            words = sample["prompt"].split()
            assert words and words == sample["passage"].split()[: len(words)]
    for sample in written("span_corruption", "encoder_decoder", noise_density=0.3):
        assert "<s0>" in sample["prompt"] and "<s0>" not in sample["passage"]
    filled = written("denoising", "encoder_decoder", permute_sentences=False, infilling=0.3)
    assert all("<mask>" in sample["prompt"] for sample in filled)
    assert written("mlm", "encoder") == written("mlm", "bilstm") == []


# Accounts ----------------------------------------------------------------------------------------

PARENT = {"lineage_tokens": 7, "lineage_flops": 70, "lineage_bytes": 21}
STEP_TOKENS = 4 * 8
AMOUNTS = [f"{of}_{each}" for of in ("pretrain", "lineage") for each in accounts.LINEAGE]


def entry_of(num_steps: int, *, model: str = "modernbert") -> Model:
    training = small_schedule(rows=4, max_tokens=8, num_steps=num_steps, lr=1e-3)
    names = {"corpus": "prose", "tokenizer": "unigram", "parent": "none"}
    component: dict[str, Any] = {"architecture": {"name": model}, "objective": {"name": "mlm"}}
    return Model(training=training, seeds=[1], **names, **component)


def history_of(num_steps: int, *, validated: dict[int, float]) -> list[Step]:
    return [Step(s, 1 / s, 0.1, 10, validated.get(s)) for s in range(1, num_steps + 1)]


def test_account_of_adds_the_parent_and_the_work_of_all_rates() -> None:
    """A rate that diverged counts with its steps until it diverged; of equal rates the first is
    kept."""
    model = small_model("encoder")
    one = Try(0.1, history_of(3, validated={2: 3.0, 3: 4.0}))
    account = account_of(model, entry_of(3), [one], PARENT, bytes_per_token=3.5)
    assert 0 < account["num_embedding_params"] < account["num_params"]
    assert {key: account[key] for key in list(account)[2:]} == {
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
    diverged = Try(0.4, [Step(1, 9.0, 0.4, 10, None), Step(2, math.nan, 0.4, 10, None)])
    tries = [diverged, one, Try(0.2, history_of(3, validated={3: 4.0}))]
    several = account_of(model, entry_of(3), tries, PARENT, bytes_per_token=3.5)
    assert several == account | {
        "rates": {"0.4": None, "0.1": 4.0, "0.2": 4.0},
        "tokens_of_all_rates": 8 * STEP_TOKENS,
        "pretrain_flops": 80,
        "lineage_flops": 150,
    }


def test_account_of_a_public_checkpoint_is_unknown() -> None:
    model, tries = small_model("encoder"), [Try(0.1, history_of(3, validated={3: 4.0}))]
    seen = [3 * STEP_TOKENS, 30, 6 * STEP_TOKENS]
    for name, some, expected in (
        ("hub", [], [None] * 6),
        ("encoder", [], [0] * 6),
        ("hub", tries, [*seen, None, None, None]),
    ):
        account = account_of(model, entry_of(3, model=name), some, None, bytes_per_token=2.0)
        assert [account[key] for key in AMOUNTS] == expected


def test_write_histories_keeps_some_rows_and_each_validation_loss(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(accounts, "HISTORY_ROWS", 3)
    rates = {0.2: {9: 11.0}, 0.1: {4: 5.0, 9: 10.0}}
    tries = [Try(rate, history_of(9, validated=losses)) for rate, losses in rates.items()]
    write_histories(tmp_path, tries, entry_of(9))
    with Path(tmp_path / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    steps = [1, 3, 4, 6, 9]
    assert [int(row["step"]) for row in rows] == steps
    assert [int(row["flops"]) for row in rows] == [10 * step for step in steps]
    assert [int(row["tokens"]) for row in rows] == [step * STEP_TOKENS for step in steps]
    assert [row["validation_loss"] for row in rows] == ["", "", "5.0", "", "10.0"]
    with Path(tmp_path / "rates.csv").open() as file:
        kept = [(row["rate"], row["kept"]) for row in csv.DictReader(file)]
    assert kept == [("0.2", "0")] * 4 + [("0.1", "1")] * 5


def test_timing_scales_the_processor_time_of_interrupted_processes() -> None:
    """The last process took 2 of 8 seconds."""
    usage = Usage(wall_time_s=2.0, processor_time_s=1.5, peak_memory_bytes=9)
    record = accounts.timing(8.0004, usage, {"tokens_of_all_rates": 1000}, CPU)
    assert (record["wall_time_s"], record["processor_time_s"]) == (8.0, 6.0)
    assert (record["tokens_per_s"], record["peak_memory_bytes"]) == (125.0, 9)


# Operations --------------------------------------------------------------------------------------


def counted(compute: Any) -> int:
    with counting() as counter:
        compute()
    return counter.flops


def test_counting_has_the_products_of_attention_and_of_an_lstm() -> None:
    rows, length, width = 3, 20, 16
    query = torch.randn(rows, 2, length, width)
    product = 2 * rows * 2 * length * length * width
    assert counted(lambda: scaled_dot_product_attention(query, query, query)) == 2 * product
    lstm, states = nn.LSTM(width, width, batch_first=True), torch.randn(rows, length, width)
    forward = 2 * rows * length * 4 * width * 2 * width  # the gates
    assert counted(lambda: lstm(states)) == forward
    # No gradient is needed for the first states.
    step = counted(lambda: lstm(states)[0].sum().backward())
    assert 2 * forward <= step <= 3 * forward


def test_step_flops_differ_with_the_weights_that_train(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flops, "_OF_PROCESS", {})
    task = Classification(["0", "1"], small_tokenizer(), 32)
    model = with_head(task, small_model("encoder"))
    batch = task.collate(task.encode([{"id": "1", "text": "a class", "label": "0"}]), rngs=[])
    step_flops, calls = StepFlops(model, task, CPU, resumes=False), list[object]()

    def step() -> None:
        calls.append(add_gradients(model, task, [batch], CPU))

    _, whole = step_flops.of(step, [batch])
    assert step_flops.of(step, [batch])[1] == whole == [*step_flops.counts.values()][0]
    model.backbone.requires_grad_(False)
    assert 0 < step_flops.of(step, [batch])[1] < 0.7 * whole and len(calls) == 3
