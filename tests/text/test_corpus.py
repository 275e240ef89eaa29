"""Encoded corpora keep their text; packing shows every token once in an epoch, and a row depends on
its number alone; batches."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.models._heads import labelled
from stages.text import corpus as corpora
from stages.text.batch import IGNORE_INDEX, document_starts, in_few_widths, label_places, pad
from stages.text.corpus import EncodedCorpus, encode
from stages.text.packing import Packing
from stages.text.tokenizer import BOS_ID, EOS_ID, Tokenizer
from tests.small import documents, saved, small_corpus, small_tokenizer
from tests.small_hub import checkpoint


def assert_equal(one: EncodedCorpus, other: EncodedCorpus) -> None:
    for name, array in vars(one).items():
        expected = getattr(other, name)
        assert np.array_equal(array, expected) and array.dtype == expected.dtype


def test_encode_keeps_each_sentence_between_the_marks_of_its_document() -> None:
    corpus = small_corpus()
    bounds = [*corpus.sentence_starts.tolist(), len(corpus.tokens)]
    sentences = [sentence for document in documents() for sentence in document]
    assert len(sentences) == len(corpus.sentence_starts)
    for sentence, start, end in zip(sentences, bounds, bounds[1:], strict=False):
        assert small_tokenizer().decode(corpus.tokens[start:end]) == sentence
    starts = corpus.document_starts
    assert len(starts) == len(documents()) and {*starts.tolist()} < {*bounds}
    assert (corpus.tokens[starts] == BOS_ID).all()
    assert (corpus.tokens[starts + corpus.document_lengths - 1] == EOS_ID).all()


@pytest.mark.parametrize("max_tokens", [1, 100, 5_000, 20_000])
def test_encode_cuts_the_document_that_reaches_max_tokens(
    max_tokens: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many documents are encoded at once makes no difference."""
    cut = saved(small_corpus(), tmp_path / "cut", max_tokens)
    monkeypatch.setattr(corpora, "DOCUMENTS_AT_ONCE", 3)
    assert_equal(encode(iter(documents()), small_tokenizer(), max_tokens=max_tokens), cut)
    assert_equal(EncodedCorpus.load(tmp_path / "cut"), cut)


def test_encode_puts_a_blank_before_a_following_sentence_of_running_text() -> None:
    """GPT-2's tokens include the blank before a word."""
    tokenizer, document = Tokenizer(checkpoint("gpt2")), documents()[0][:9]
    for running, between in ((True, " "), (False, "")):
        tokens = encode([document], tokenizer, running=running).tokens
        assert tokenizer.decode(tokens) == between.join(document)


# Packing ------------------------------------------------------------------------------------------


@given(
    lengths=st.lists(st.integers(1, 30), min_size=3, max_size=30),
    max_tokens=st.integers(1, 16),
    seed=st.integers(0, 10),
)
@settings(max_examples=60, deadline=None)
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


def test_row_depends_on_seed_and_number_alone() -> None:
    one, same, other = (Packing(small_corpus(), 32, seed=seed) for seed in (3, 3, 2))
    number = 2 * one.rows_per_epoch
    rows = [one.row(i).tokens for i in range(number + 1)]
    assert np.array_equal(rows[number], same.row(number).tokens)
    for different in (rows[one.rows_per_epoch], other.row(0).tokens):
        assert not np.array_equal(rows[0], different)
    with pytest.raises(ValueError, match="5 tokens, fewer than max_tokens 8"):
        Packing(EncodedCorpus(np.arange(5), np.zeros(1), np.zeros(1)), 8, seed=1)


# Batches ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "width"), [(1, 64), (64, 64), (65, 100), (100, 100), (200, 200)]
)
def test_pad_in_few_widths_makes_multiples_of_64_up_to_the_longest(length: int, width: int) -> None:
    rows = [np.arange(length), np.arange(1)]
    with in_few_widths(100):
        assert pad(rows, -5).shape == (2, width)
        assert pad(rows, -5, length=length).shape == (2, length)
        assert (pad(rows, -5)[0, length:] == -5).all()
    assert pad(rows, -5).shape == (2, length)


def test_document_starts_are_those_of_all_rows_in_one_sequence() -> None:
    """The number of tokens is the last, repeated up to a power of two."""
    ids = [[1, 1, 1, 2, 3, 3, 0, 0], [1, 2, 2, 2, 2, 2, 2, 3], [0] * 8, [1] * 8]
    starts = document_starts(torch.tensor(ids))
    assert starts is not None and starts.dtype == torch.int32
    assert starts.tolist() == [0, 3, 4, 6, 8, 9, 15, 16, 24, *[32] * 7]
    full = document_starts(torch.tensor([[1, 1], [1, 2], [1, 1]]))
    assert full is not None and full.tolist() == [0, 2, 3, 4, *[6] * 4]
    in_two_places = [[0, 1, 1, 0], [1, 1, 1, 1]]
    assert document_starts(torch.tensor(in_two_places)) is None


def test_labelled_gives_states_where_labels_count_and_ignores_absent_places() -> None:
    labels = torch.tensor([[3, IGNORE_INDEX, 4], [IGNORE_INDEX, 5, IGNORE_INDEX]])
    states = torch.arange(12.0).view(2, 3, 2)
    places = label_places(labels)
    assert places.tolist() == [[0, 0, 1], [0, 2, 1]]
    chosen, right = labelled(states, labels, torch.nn.functional.pad(places, (0, 2), value=-1))
    assert torch.equal(chosen[:3], states[labels != IGNORE_INDEX]) and len(chosen) == 5
    assert right.tolist() == [3, 4, 5, IGNORE_INDEX, IGNORE_INDEX]
