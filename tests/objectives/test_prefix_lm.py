"""Prefix language modelling: what is seen, what is predicted, and that the two never meet."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.core.seeding import stream
from stages.objectives.prefix_lm import PrefixLM
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.packing import Row
from stages.text.tokenizer import Vocabulary
from tests.small import VOCAB_SIZE, small_model

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


def test_no_token_sees_its_label() -> None:
    """Another token in a label's place does not change the state that predicts the label."""
    batch = collated([row_of([12, 1, 9], seed=1)])
    (_,), (labels,) = arrays_of(batch)
    model = small_model("decoder").eval()
    before = model(batch)[0]
    targets = np.flatnonzero(labels != IGNORE_INDEX)
    assert len(targets) >= 2
    for at in targets:
        batch.input_ids[0, at + 1] = 7 if labels[at] != 7 else 8
        after = model(batch)[0]
        assert torch.equal(before[: at + 1], after[: at + 1])
        assert not torch.equal(before[at + 1], after[at + 1])
        batch.input_ids[0, at + 1] = int(labels[at])
