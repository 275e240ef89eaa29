"""Masked spans: which are chosen, how they change, and what their boundaries predict."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor, nn

from stages.core.seeding import stream, torch_stream
from stages.models._heads import ModelWithHead, initialise_head
from stages.objectives.span_mlm import SpanMLM
from stages.optimizers.adamw import AdamW
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.packing import Packing, Row
from stages.text.tokenizer import BOS_ID, EOS_ID, MASK_ID, NUM_SPECIAL
from tests.small import (
    VOCAB_SIZE,
    small_corpus,
    small_model,
    small_tokenizer,
    with_stub,
)

TOKENIZER = small_tokenizer()
WORD_BEGINNINGS = np.flatnonzero(TOKENIZER.starts_word[: -len(TOKENIZER.sentinel_ids)])


def rows_of(max_tokens: int, number: int, *, seed: int = 1) -> list[Row]:
    packing = Packing(small_corpus(), max_tokens, seed=seed)
    return [packing.row(i) for i in range(number)]


def row_of_words(length: int, *, seed: int) -> Row:
    """A document in which each token is a word."""
    text = stream(seed, "text").choice(WORD_BEGINNINGS, length)
    return Row(np.array([BOS_ID, *text, EOS_ID]), np.ones(length + 2, dtype=int))


def collated(objective: SpanMLM, rows: list[Row], *, seed: int = 0) -> Batch:
    return objective.collate(rows, rngs=[stream(seed, "mask", i) for i in range(len(rows))])


def spans_of(batch: Batch, row: int) -> dict[tuple[int, int], list[int]]:
    """(left boundary, right boundary) -> the positions predicted between them."""
    assert batch.target_positions is not None and batch.boundary_positions is not None
    assert batch.labels is not None
    real = batch.labels[row] != IGNORE_INDEX
    spans: dict[tuple[int, int], list[int]] = {}
    for position, (left, right) in zip(
        batch.target_positions[row][real].tolist(),
        batch.boundary_positions[row][real].tolist(),
        strict=True,
    ):
        spans.setdefault((left, right), []).append(position)
    return spans


def label_at(batch: Batch, row: int, position: int) -> int:
    assert batch.target_positions is not None and batch.labels is not None
    return int(batch.labels[row][batch.target_positions[row] == position][0])


def with_head(objective: SpanMLM, *, seed: int = 1) -> ModelWithHead:
    backbone = small_model("encoder", seed=seed)
    model = ModelWithHead(backbone, objective.head(backbone))
    initialise_head(model.head, generator=torch_stream(seed, "head"))
    return model


def mean_terms(objective: SpanMLM, model: ModelWithHead, batch: Batch) -> dict[str, Tensor]:
    terms = objective.loss(model, batch)
    return {name: total / batch.num_targets[name] for name, (_, total) in terms.items()}


@given(max_tokens=st.integers(4, 200), seed=st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_spans_are_whole_words_inside_one_document(max_tokens, seed) -> None:
    """The token on each side of a span is of the same document and is not chosen itself."""
    rows = rows_of(max_tokens, 3, seed=seed)
    batch = collated(SpanMLM(TOKENIZER, max_tokens), rows, seed=seed)
    for i, row in enumerate(rows):
        spans = spans_of(batch, i)
        chosen = [position for positions in spans.values() for position in positions]
        assert len(set(chosen)) == len(chosen)
        for (left, right), positions in spans.items():
            assert positions == list(range(left + 1, right))
            assert not {left, right} & set(chosen)
            assert batch.input_ids[i, [left, right]].tolist() == row.tokens[[left, right]].tolist()
            assert len(set(row.document_ids[left : right + 1])) == 1
            assert (row.tokens[positions] >= NUM_SPECIAL).all()
            assert TOKENIZER.starts_word[row.tokens[left + 1]]
            assert TOKENIZER.starts_word[row.tokens[right]] or row.tokens[right] == EOS_ID


def test_lengths_in_words_are_geometric_cut_off_at_10_and_places_uniform() -> None:
    """About 3,200 spans, of which one in 160 is cut short by the budget."""
    rows = [row_of_words(4_000, seed=i) for i in range(20)]
    batch = collated(SpanMLM(TOKENIZER, 4_002), rows)
    lengths = np.array(
        [len(positions) for i in range(20) for positions in spans_of(batch, i).values()]
    )
    counts = np.bincount(lengths)[1:]
    expected = 0.2 * 0.8 ** np.arange(10) / (1 - 0.8**10)
    assert len(counts) == 10
    assert lengths.mean() == pytest.approx(3.80, abs=0.2)
    assert chisquare(counts, expected * len(lengths)).pvalue > 0.001
    other = 0.25 * 0.75 ** np.arange(10) / (1 - 0.75**10)
    assert chisquare(counts, other * len(lengths)).pvalue < 1e-6  # another p is rejected
    assert batch.target_positions is not None
    in_first_half = (batch.target_positions < 2_000).float().mean().item()
    assert in_first_half == pytest.approx(0.5, abs=0.04)


def test_a_span_has_one_fate() -> None:
    """A whole span is masked (80 %), kept (10 %) or random, within 4 standard deviations."""
    rows = [row_of_words(400, seed=i) for i in range(60)]
    batch = collated(SpanMLM(TOKENIZER, 402), rows)
    fates = []
    for i, row in enumerate(rows):
        for positions in spans_of(batch, i).values():
            inputs, original = batch.input_ids[i, positions].numpy(), row.tokens[positions]
            masked, same = inputs == MASK_ID, inputs == original
            if len(positions) >= 3:  # a random token may be the original
                assert masked.all() or same.all() or not masked.any() and same.sum() <= 1
            fates.append("masked" if masked[0] else "kept" if same.all() else "random")
    for fate, expected in (("masked", 0.8), ("kept", 0.1), ("random", 0.1)):
        observed = fates.count(fate) / len(fates)
        assert abs(observed - expected) < 4 * (expected * (1 - expected) / len(fates)) ** 0.5


class GivenStates(nn.Module):
    """An encoder whose states are given."""

    def __init__(self, states: Tensor) -> None:
        super().__init__()
        self.states, encoder = states, small_model("encoder")
        self.unembed = encoder.unembed
        self.token_embedding = encoder.token_embedding
        self.d_model, self.vocab_size = encoder.d_model, encoder.vocab_size

    def forward(self, batch: Batch) -> Tensor:
        return self.states


def test_a_boundary_prediction_sees_the_boundaries_and_the_place_alone() -> None:
    """The loss equals the formula, computed token by token from the states at the boundaries."""
    objective = SpanMLM(TOKENIZER, 64)
    batch = collated(objective, rows_of(64, 3))
    states = torch.randn(3, 64, 32, generator=torch_stream(1, "states"))
    head = with_head(objective).head
    backbone = GivenStates(states)
    expected = torch.zeros(())
    for i in range(3):
        for (left, right), positions in spans_of(batch, i).items():
            for place in range(len(positions)):
                h = torch.cat([states[i, left], states[i, right], head.positions.weight[place]])
                h = head.first_norm(F.gelu(head.first(h)))
                y = head.second_norm(F.gelu(head.second(h)))
                logits = backbone.token_embedding.weight @ y + head.bias
                label = label_at(batch, i, positions[place])
                expected = expected - logits.log_softmax(0)[label]
    _, loss_sum = objective.loss(with_stub(backbone, head), batch)["boundary"]
    torch.testing.assert_close(loss_sum, expected)


def test_both_terms_can_be_learnt() -> None:
    """The losses of a batch fall from chance to far below the entropy of tokens' frequencies."""
    objective = SpanMLM(TOKENIZER, 64)
    batch = collated(objective, rows_of(64, 2))
    model = with_head(objective)
    before = mean_terms(objective, model, batch)
    for loss in before.values():
        assert abs(loss.item() - math.log(VOCAB_SIZE)) < 0.5
    optimizer = AdamW(model, 0.0, torch.float32)
    for _ in range(80):
        total = sum(mean_terms(objective, model, batch).values())
        assert isinstance(total, Tensor)
        total.backward()
        optimizer.step(lr=5e-3)
    assert batch.labels is not None
    labels = batch.labels[batch.labels != IGNORE_INDEX]
    frequencies = labels.unique(return_counts=True)[1] / len(labels)
    entropy = -(frequencies * frequencies.log()).sum().item()
    for name, loss in mean_terms(objective, model, batch).items():
        assert loss.item() < 0.05 * entropy, name
