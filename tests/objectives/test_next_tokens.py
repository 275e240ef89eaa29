"""Objectives that predict the tokens beside: causal, with a prefix, and in both directions."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.objectives.bidirectional_lm import BidirectionalLM
from stages.objectives.causal import Causal
from stages.objectives.prefix_lm import PrefixLM
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.packing import Row
from stages.text.tokenizer import Vocabulary
from tests.objectives.rows import collated, packed_rows, row_of
from tests.small import VOCAB_SIZE, headless, small_model

SETTINGS = Vocabulary(VOCAB_SIZE), 32
CAUSAL, PREFIX, BOTH = Causal(*SETTINGS), PrefixLM(*SETTINGS), BidirectionalLM(*SETTINGS)


def test_labels_are_the_next_and_the_previous_tokens_of_the_same_document() -> None:
    row = Row(np.array([2, 10, 11, 3, 2, 12, 13]), np.array([1, 1, 1, 1, 2, 2, 3]))
    none = IGNORE_INDEX
    after, before = [10, 11, 3, none, 12, none, none], [none, 2, 10, 11, none, 2, none]
    batch: Any = collated(CAUSAL, [row])
    assert batch.labels.tolist() == [after] and batch.num_targets == {"causal": 4}
    both: Any = collated(BOTH, [row])
    assert both.labels.tolist() == [[after, before]]
    assert both.num_targets == {"forward": 4, "backward": 4}
    assert both.input_ids[0].tolist() == row.tokens.tolist()


def test_loss_of_both_directions_is_cross_entropy_on_the_logits_of_all_positions() -> None:
    batch: Any = collated(BOTH, packed_rows(32, 4))
    model = small_model("bilstm").eval()
    terms = BOTH.loss(headless(model), batch)
    for i, (name, states) in enumerate(
        zip(("forward", "backward"), model.directions(batch), strict=True)
    ):
        logits, labels = model.unembed(states).flatten(0, 1), batch.labels[:, i].flatten()
        expected = F.cross_entropy(logits, labels, ignore_index=IGNORE_INDEX, reduction="sum")
        torch.testing.assert_close(terms[name][1], expected)


def test_no_direction_sees_its_label() -> None:
    """A changed token changes neither the logits that predict it nor those that its direction
    computes earlier."""
    model = small_model("bilstm").eval()
    (row,) = packed_rows(32, 1)
    before = model.directions(collated(BOTH, [row]))
    for at in range(0, len(row.tokens), 5):
        tokens = row.tokens.copy()
        tokens[at] = (tokens[at] + 1) % VOCAB_SIZE
        forward, backward = model.directions(collated(BOTH, [Row(tokens, row.document_ids)]))
        assert torch.equal(forward[:, :at], before[0][:, :at])
        assert torch.equal(backward[:, at + 1 :], before[1][:, at + 1 :])
        assert not torch.equal(forward[:, at], before[0][:, at])
        assert not torch.equal(backward[:, at], before[1][:, at])


@given(lengths=st.lists(st.integers(0, 18), min_size=1, max_size=5), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_each_document_is_a_prefix_and_then_targets(lengths, seed) -> None:
    row = row_of(*lengths, seed=seed)
    batch: Any = collated(PREFIX, [row], seed=seed)
    assert torch.equal(batch.input_ids[0], torch.from_numpy(row.tokens))
    for number in range(1, len(lengths) + 1):
        here = row.document_ids == number
        tokens, seen, labels = row.tokens[here], batch.visible[0][here], batch.labels[0][here]
        split = int(seen.sum())
        assert 1 <= split < len(tokens) and seen[:split].all()
        none = IGNORE_INDEX
        assert labels.tolist() == [*[none] * (split - 1), *tokens[split:], none]
    assert batch.num_targets == {"prefix_lm": int((batch.labels != IGNORE_INDEX).sum())}


def test_no_token_of_a_prefix_model_sees_its_label() -> None:
    """Another token in a label's place does not change the state that predicts the label."""
    batch: Batch = collated(PREFIX, [row_of(12, 0, 9, seed=1)])
    assert batch.labels is not None
    labels, model = batch.labels[0], small_model("decoder").eval()
    before = model(batch)[0]
    targets = np.flatnonzero(labels != IGNORE_INDEX)
    assert len(targets) >= 2
    for at in targets:
        batch.input_ids[0, at + 1] = 7 if labels[at] != 7 else 8
        after = model(batch)[0]
        assert torch.equal(before[: at + 1], after[: at + 1])
        assert not torch.equal(before[at + 1], after[at + 1])
        batch.input_ids[0, at + 1] = labels[at]
