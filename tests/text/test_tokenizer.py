"""Conversion of text to ids and back."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.text import tokenizer
from stages.text.tokenizer import (
    BOS_ID,
    EOS_ID,
    MASK_ID,
    MOST_BYTES,
    NUM_SENTINELS,
    NUM_SPECIAL,
    Tokenizer,
    Vocabulary,
    _within_limit,
)
from tests.small import VOCAB_SIZE, documents, small_tokenizer


def test_decode_gives_back_what_was_encoded() -> None:
    """Characters that are not in the training text are kept as bytes."""
    texts = ["Ωmega 漢字", *(line for document in documents()[:5] for line in document)]
    encoded = small_tokenizer().encode(texts)
    assert [small_tokenizer().decode(ids) for ids in encoded] == texts
    regular = {*small_tokenizer().regular_ids}
    assert all(regular.issuperset(ids) for ids in encoded)


def test_shown_marks_what_is_left_out() -> None:
    """<bos> and <eos> have no mark; the text between marks is unchanged."""
    one, two = small_tokenizer().encode(["one thing", "and two"])
    first, second = small_tokenizer().sentinel_ids[:2].tolist()
    ids = [BOS_ID, *one, first, *two, MASK_ID, MASK_ID, second, EOS_ID]
    assert small_tokenizer().shown(ids) == "one thing <s0> and two <mask> <mask> <s1>"


def test_vocabulary_has_the_size_asked_for_and_ends_with_the_sentinels() -> None:
    vocabulary = Vocabulary(VOCAB_SIZE)
    assert small_tokenizer().vocab_size == VOCAB_SIZE
    assert vocabulary.sentinel_ids[0] == VOCAB_SIZE - 1
    assert len(vocabulary.sentinel_ids) == NUM_SENTINELS
    assert list(vocabulary.regular_ids) == list(range(NUM_SPECIAL, VOCAB_SIZE - NUM_SENTINELS))


def test_starts_word_is_where_a_piece_carries_the_blank() -> None:
    (ids,) = small_tokenizer().encode(["one two three"])
    assert small_tokenizer().starts_word[ids].sum() == 3
    assert small_tokenizer().starts_word[ids[0]]


@pytest.mark.parametrize("algorithm", ["unigram", "bpe", "char"])
def test_train_gives_the_same_bytes_twice(tmp_path, algorithm) -> None:
    lines = [line for document in documents()[:10] for line in document]
    paths = [tmp_path / "a" / tokenizer.FILE, tmp_path / "b" / tokenizer.FILE]
    for path in paths:
        path.parent.mkdir()
        tokenizer.train(lines, path, algorithm=algorithm, vocab_size=500, threads=2)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert Tokenizer(paths[0]).encode(["the same"]) == Tokenizer(paths[1]).encode(["the same"])


def test_train_reads_sentences_that_sentencepiece_alone_would_leave_out(tmp_path) -> None:
    long = " ".join(f"elephant{i % 7}" for i in range(2000))
    tokenizer.train(
        [*["a short one"] * 9, long],
        tmp_path / tokenizer.FILE,
        algorithm="unigram",
        vocab_size=379,
        threads=1,
    )
    (ids,) = tokenizer.Tokenizer(tmp_path / tokenizer.FILE).encode(["elephant"])
    assert len(ids) < 4  # not one for each letter


@given(st.text(st.sampled_from("a é好"), max_size=9000))
def test_within_limit_cuts_a_sentence_into_pieces_that_are_the_whole(sentence: str) -> None:
    pieces = [*_within_limit(sentence)]
    assert "".join(pieces) == sentence
    assert all(len(piece.encode()) <= MOST_BYTES for piece in pieces)


def test_train_refuses_a_vocabulary_that_the_text_cannot_fill(tmp_path) -> None:
    with pytest.raises(ValueError, match="vocab_size 50000 does not suit the text"):
        tokenizer.train(
            ["few words"], tmp_path / "t.model", algorithm="unigram", vocab_size=50_000, threads=1
        )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a class", ["a", "class"]),
        ("  a\u00a0class ", ["a", "class"]),
        ("Ⅷ", ["Ⅷ"]),  # several letters in NFKC
        ("漢e\u0301", ["漢", "e\u0301"]),  # several bytes; one letter in NFKC
        ("", []),
        (" \t ", []),
    ],
)
def test_encode_with_offsets_counts_in_the_text_as_it_was_given(text, parts) -> None:
    ((ids, offsets),) = small_tokenizer().encode_with_offsets([text])
    assert [ids] == small_tokenizer().encode([text])
    pieces = [text[begin:end] for begin, end in offsets]
    assert [part for part in dict.fromkeys(pieces) if part] == parts


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=30), max_size=5))
@settings(max_examples=100, deadline=None)
def test_encode_with_offsets_is_in_order_and_leaves_blanks_out(texts) -> None:
    encodings = small_tokenizer().encode_with_offsets(texts)
    assert [ids for ids, _ in encodings] == small_tokenizer().encode(texts)
    for text, (ids, offsets) in zip(texts, encodings, strict=True):
        assert len(ids) == len(offsets)
        assert all(0 <= begin <= end <= len(text) for begin, end in offsets)
        assert all(a <= b for a, b in pairwise(begin for begin, _ in offsets))
        parts = [text[begin:end] for begin, end in offsets]
        assert parts == [part.strip() for part in parts]


def test_encode_with_offsets_covers_every_letter() -> None:
    texts = [line for document in documents()[:3] for line in document]
    for text, (_, offsets) in zip(texts, small_tokenizer().encode_with_offsets(texts), strict=True):
        covered = {place for begin, end in offsets for place in range(begin, end)}
        assert {i for i, letter in enumerate(text) if not letter.isspace()} <= covered
