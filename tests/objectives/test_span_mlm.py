"""Masked spans: which are chosen, how they change, and what their boundaries predict."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from stages.core.seeding import torch_stream
from stages.models._heads import ModelWithHead, initialise_head
from stages.objectives.span_mlm import SpanMLM
from stages.text.batch import IGNORE_INDEX
from stages.text.tokenizer import EOS_ID, NUM_SPECIAL
from tests.objectives.rows import collated, packed_rows, row_of
from tests.small import small_model, small_tokenizer

TOKENIZER = small_tokenizer()
WORDS = np.flatnonzero(TOKENIZER.starts_word[: -len(TOKENIZER.sentinel_ids)])  # one token each


def spans_of(batch: Any, row: int) -> dict[tuple[int, int], list[int]]:
    """(left boundary, right boundary) -> the positions predicted between them."""
    real = batch.labels[row] != IGNORE_INDEX
    boundaries = batch.extra[row][real].tolist()
    spans: dict[tuple[int, int], list[int]] = {}
    for position, ends in zip(batch.target_positions[row][real].tolist(), boundaries, strict=True):
        spans.setdefault(tuple(ends), []).append(position)
    return spans


@given(max_tokens=st.integers(4, 200), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_spans_are_whole_words_inside_one_document(max_tokens, seed) -> None:
    """The token on each side of a span is of the same document and is not chosen itself."""
    rows = packed_rows(max_tokens, 3, seed=seed)
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
    rows = [row_of(4_000, seed=i, tokens=WORDS) for i in range(20)]
    batch: Any = collated(SpanMLM(TOKENIZER, 4_002), rows)
    counts = np.bincount([len(span) for i in range(20) for span in spans_of(batch, i).values()])[1:]
    for p, is_refused in ((0.2, False), (0.25, True)):
        shares = p * (1 - p) ** np.arange(10) / (1 - (1 - p) ** 10)
        pvalue = chisquare(counts, shares * counts.sum()).pvalue
        assert pvalue < 1e-6 if is_refused else pvalue > 0.001
    in_first_half = (batch.target_positions < 2_000).float().mean().item()
    assert in_first_half == pytest.approx(0.5, abs=0.04)


def test_a_boundary_prediction_sees_the_boundaries_and_the_place_alone() -> None:
    """The loss equals the formula, computed token by token from the states at the boundaries."""
    objective = SpanMLM(TOKENIZER, 64)
    batch: Any = collated(objective, packed_rows(64, 3))
    backbone: Any = small_model("encoder").eval()
    head: Any = objective.head(backbone)
    initialise_head(head, generator=torch_stream(1, "head"))
    states, expected = backbone(batch), torch.zeros(())
    for i in range(3):
        for (left, right), positions in spans_of(batch, i).items():
            for place, position in enumerate(positions):
                h = torch.cat([states[i, left], states[i, right], head.positions.weight[place]])
                h = head.first_norm(F.gelu(head.first(h)))
                y = head.second_norm(F.gelu(head.second(h)))
                logits = backbone.token_embedding.weight @ y + head.bias
                label = batch.labels[i][batch.target_positions[i] == position][0]
                expected = expected - logits.log_softmax(0)[label]
    terms = objective.loss(ModelWithHead(backbone, head), batch)
    torch.testing.assert_close(terms["boundary"][1], expected)
    assert batch.num_targets["boundary"] == batch.num_targets["span_mlm"] > 0
