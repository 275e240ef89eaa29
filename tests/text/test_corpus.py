"""Encoded corpora keep their text and the beginnings of documents and sentences."""

from pathlib import Path

import numpy as np
import pytest

from stages.core.artifacts import write_jsonl
from stages.text import corpus as corpora
from stages.text.corpus import EncodedCorpus, StoredDocuments, encode
from stages.text.tokenizer import BOS_ID, EOS_ID, Tokenizer
from tests.small import documents, saved, small_corpus, small_tokenizer
from tests.small_hub import checkpoint


def assert_equal(one: EncodedCorpus, other: EncodedCorpus) -> None:
    for name, array in vars(one).items():
        expected = getattr(other, name)
        assert np.array_equal(array, expected) and array.dtype == expected.dtype


def test_encode_keeps_the_text_of_every_document() -> None:
    corpus = small_corpus()
    assert len(corpus.document_starts) == len(documents())
    ends = corpus.document_starts + corpus.document_lengths
    for document, start, end in zip(documents(), corpus.document_starts, ends, strict=True):
        tokens = corpus.tokens[start:end]
        assert (tokens[0], tokens[-1]) == (BOS_ID, EOS_ID)
        text = small_tokenizer().decode(tokens)
        assert "".join(text.split()) == "".join("".join(document).split())


def test_encode_says_where_sentences_begin() -> None:
    corpus = small_corpus()
    bounds = np.append(corpus.sentence_starts, len(corpus.tokens))
    sentences = [sentence for document in documents() for sentence in document]
    assert len(sentences) == len(corpus.sentence_starts)
    for sentence, start, end in list(zip(sentences, bounds, bounds[1:], strict=False))[:50]:
        assert small_tokenizer().decode(corpus.tokens[start:end]) == sentence


@pytest.mark.parametrize("max_tokens", [1, 100, 5_000, 20_000])
def test_encode_cuts_the_document_that_reaches_max_tokens(max_tokens: int, tmp_path: Path) -> None:
    cut = saved(small_corpus(), tmp_path / "cut", max_tokens)
    assert_equal(encode(documents(), small_tokenizer(), max_tokens=max_tokens), cut)
    assert_equal(EncodedCorpus.load(tmp_path / "cut"), cut)


def test_encode_does_not_depend_on_how_many_documents_are_encoded_at_once(monkeypatch) -> None:
    monkeypatch.setattr(corpora, "DOCUMENTS_AT_ONCE", 3)
    assert_equal(encode(iter(documents()), small_tokenizer()), small_corpus())


def test_encode_puts_a_blank_before_a_following_sentence_of_running_text() -> None:
    """GPT-2's tokens include the blank before a word."""
    tokenizer, document = Tokenizer(checkpoint("gpt2")), documents()[0][:9]
    for running, between in ((True, " "), (False, "")):
        tokens = encode([document], tokenizer, running=running).tokens
        assert tokenizer.decode(tokens) == between.join(document)


def test_stored_documents_are_found_by_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    write_jsonl(path, ({"id": str(i), "sentences": text} for i, text in enumerate(documents())))
    stored = StoredDocuments(path)
    assert len(stored) == len(documents())
    numbers = [5, 0, len(stored) - 1, 5]
    assert list(stored.sentences(numbers)) == [documents()[i] for i in numbers]
    assert [text for part in stored.parts(numbers) for text in part] == [
        documents()[i] for i in numbers
    ]
