"""Prefix language modelling: what is seen, what is predicted, and that the two never meet."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.core.seeding import stream
from stages.objectives.prefix_lm import PrefixLM
from stages.optimizers.adamw import AdamW
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.packing import Packing, Row
from stages.text.tokenizer import Vocabulary
from stages.training.device import Device
from stages.training.loop import accumulate
from stages.training.pretraining import PretrainingData
from tests.small import VOCAB_SIZE, headless, small_corpus, small_model

CPU = Device("cpu", "float32", compile=False, threads=1)
OBJECTIVE = PrefixLM(Vocabulary(VOCAB_SIZE), 32)


def row_of(lengths: list[int], *, seed: int) -> Row:
    tokens = stream(seed, "text").integers(5, VOCAB_SIZE - 100, sum(lengths))
    return Row(tokens, np.repeat(np.arange(1, len(lengths) + 1), lengths))


def collated(rows: list[Row], *, seed: int = 0) -> Batch:
    return OBJECTIVE.collate(rows, rngs=[stream(seed, "split", i) for i in range(len(rows))])


def arrays_of(batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Returns (visible, labels)."""
    assert batch.visible is not None and batch.labels is not None
    return batch.visible.numpy(), batch.labels.numpy()


@given(lengths=st.lists(st.integers(1, 20), min_size=1, max_size=5), seed=st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_each_document_is_a_prefix_and_then_targets(lengths, seed) -> None:
    row = row_of(lengths, seed=seed)
    batch = collated([row], seed=seed)
    assert torch.equal(batch.input_ids[0], torch.from_numpy(row.tokens))
    (visible,), (labels,) = arrays_of(batch)
    for number, length in enumerate(lengths, start=1):
        here = row.document_ids == number
        tokens, seen, labelled = row.tokens[here], visible[here], labels[here]
        split = seen.sum()
        if length == 1:
            assert not seen.any() and (labelled == IGNORE_INDEX).all()
            continue
        assert 1 <= split < length and seen[:split].all()
        assert (labelled[: split - 1] == IGNORE_INDEX).all()
        assert np.array_equal(labelled[split - 1 : -1], tokens[split:])
        assert labelled[-1] == IGNORE_INDEX  # what follows is another document's
    assert batch.num_targets == {"prefix_lm": int((labels != IGNORE_INDEX).sum())}


def test_every_length_of_a_prefix_is_as_likely() -> None:
    """Prefixes of 1 to 4 of 5 tokens: each within 4 standard deviations of a quarter of 2,000."""
    visible, _ = arrays_of(collated([row_of([5], seed=1)] * 2000))
    counts = np.bincount(visible.sum(axis=1), minlength=6)
    assert counts[0] == counts[5] == 0
    assert (abs(counts[1:5] - 500) < 4 * (2000 * 0.25 * 0.75) ** 0.5).all()


def test_half_of_the_tokens_are_predicted() -> None:
    """The mean is n / 2 of n tokens, within 4 standard deviations of a uniform draw."""
    num_targets = collated([row_of([32], seed=i) for i in range(1000)]).num_targets["prefix_lm"]
    assert abs(num_targets / (1000 * 32) - 0.5) < 4 * (31 / 32) / 12**0.5 / 1000**0.5


@pytest.mark.parametrize("positions", ["rotary", "relative"])
def test_no_token_sees_its_label(positions) -> None:
    """Another token in a label's place does not change the state that predicts the label."""
    batch = collated([row_of([12, 1, 9], seed=1)])
    (_,), (labels,) = arrays_of(batch)
    model = small_model("decoder", positions=positions).eval()
    before = model(batch)[0]
    targets = np.flatnonzero(labels != IGNORE_INDEX)
    assert len(targets) >= 2
    for at in targets:
        batch.input_ids[0, at + 1] = 7 if labels[at] != 7 else 8
        after = model(batch)[0]
        assert torch.equal(before[: at + 1], after[: at + 1])
        assert not torch.equal(before[at + 1], after[at + 1])
        batch.input_ids[0, at + 1] = int(labels[at])


def test_micro_batches_change_no_split() -> None:
    packing = Packing(small_corpus(), 32, seed=1)
    (whole,), parts = (
        PretrainingData(
            packing, OBJECTIVE, batch_rows=4, micro_batch_rows=rows, seed=1
        ).micro_batches(2)
        for rows in (4, 2)
    )
    for name in ("input_ids", "visible", "labels"):
        joined = torch.cat([getattr(part, name) for part in parts])
        assert torch.equal(getattr(whole, name), joined)
    assert whole.num_targets["prefix_lm"] == sum(p.num_targets["prefix_lm"] for p in parts)


@pytest.mark.slow
def test_one_batch_is_learnt_from_chance_to_near_its_floor() -> None:
    packing = Packing(small_corpus(), 32, seed=1)
    batch = collated([packing.row(i) for i in range(8)])
    model = headless(small_model("decoder", d_model=64))
    optimizer = AdamW(model, 0.0, torch.float32)
    losses = []
    for _ in range(80):
        losses.append(accumulate(model, OBJECTIVE, [batch], CPU))
        optimizer.step(lr=5e-3)
    assert losses[0] == pytest.approx(np.log(VOCAB_SIZE), abs=0.3)
    assert losses[-1] < 0.5


def test_it_is_validated_by_itself() -> None:
    assert OBJECTIVE.for_validation() is OBJECTIVE
