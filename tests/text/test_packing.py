"""Packing: every token once in each epoch; a row depends on its number alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.text.corpus import EncodedCorpus
from stages.text.packing import Packing
from tests.small import small_corpus


@given(
    lengths=st.lists(st.integers(1, 30), min_size=3, max_size=30),
    max_tokens=st.integers(1, 16),
    seed=st.integers(0, 10),
)
@settings(max_examples=100, deadline=None)
def test_row_shows_tokens_once_in_an_epoch_with_their_documents_and_sentences(
    lengths, max_tokens, seed
) -> None:
    """Every third sentence begins a document."""
    starts = np.cumsum([0, *lengths[:-1]])
    corpus = EncodedCorpus(np.arange(sum(lengths)), starts[::3], starts)
    packing = Packing(corpus, max_tokens := min(max_tokens, sum(lengths)), seed=seed)
    document = np.repeat(np.arange(len(corpus.document_starts)), corpus.document_lengths)
    rows = [packing.row(i) for i in range(packing.rows_per_epoch)]
    for row in rows:
        assert len(row.tokens) == len(row.document_ids) == max_tokens and row.document_ids[0] == 1
        same = document[row.tokens][:, None] == document[row.tokens][None, :]
        assert np.array_equal(row.document_ids[:, None] == row.document_ids[None, :], same)
        assert row.starts_sentence is not None
        assert np.array_equal(row.starts_sentence, np.isin(row.tokens, starts))
    shown = np.concatenate([row.tokens for row in rows])
    assert len(np.unique(shown)) == len(shown) > sum(lengths) - max_tokens


def test_a_row_depends_on_seed_and_number_alone() -> None:
    one, same, other = (Packing(small_corpus(), 32, seed=seed) for seed in (3, 3, 2))
    number = 2 * one.rows_per_epoch
    rows = [one.row(i).tokens for i in range(number + 1)]
    assert np.array_equal(rows[number], same.row(number).tokens)
    for different in (rows[one.rows_per_epoch], other.row(0).tokens):
        assert not np.array_equal(rows[0], different)


def test_packing_refuses_a_corpus_shorter_than_a_row() -> None:
    with pytest.raises(ValueError, match="5 tokens, fewer than max_tokens 8"):
        Packing(EncodedCorpus(np.arange(5), np.zeros(1), np.zeros(1)), 8, seed=1)
