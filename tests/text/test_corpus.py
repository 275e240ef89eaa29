"""Encoded corpora keep their text and the beginnings of documents and sentences."""

import numpy as np

from stages.text.corpus import EncodedCorpus, document_order, encode
from stages.text.tokenizer import BOS_ID, EOS_ID
from tests.small import documents, small_corpus, small_tokenizer


def test_encode_keeps_the_text_of_every_document() -> None:
    corpus = small_corpus()
    assert len(corpus.document_starts) == len(documents())
    ends = corpus.document_starts + corpus.document_lengths
    for document, start, end in zip(documents(), corpus.document_starts, ends, strict=True):
        tokens = corpus.tokens[start:end]
        assert (tokens[0], tokens[-1]) == (BOS_ID, EOS_ID)
        assert "".join(small_tokenizer().decode(tokens).split()) == "".join(
            "".join(document).split()
        )


def test_encode_says_where_sentences_begin() -> None:
    corpus = small_corpus()
    bounds = np.append(corpus.sentence_starts, len(corpus.tokens))
    sentences = [sentence for document in documents() for sentence in document]
    assert len(sentences) == len(corpus.sentence_starts)
    for sentence, start, end in list(zip(sentences, bounds, bounds[1:], strict=False))[:50]:
        assert small_tokenizer().decode(corpus.tokens[start:end]) == sentence


def test_encode_keeps_max_tokens_from_the_front() -> None:
    cut = encode(documents(), small_tokenizer(), max_tokens=1_000)
    assert cut.tokens.tolist() == small_corpus().tokens[:1_000].tolist()
    assert cut.document_lengths.sum() == 1_000
    assert (cut.sentence_starts < 1_000).all()


def test_encoded_corpus_is_the_same_after_saving(tmp_path) -> None:
    small_corpus().save(tmp_path / "corpus")
    loaded = EncodedCorpus.load(tmp_path / "corpus")
    for name, array in vars(small_corpus()).items():
        assert np.array_equal(array, getattr(loaded, name))


def test_document_order_makes_a_smaller_amount_a_part_of_a_larger_one() -> None:
    """Documents are encoded in one order, whatever the amount."""
    order = document_order(len(documents()), "train")
    assert sorted(order) == [*range(len(documents()))] != order.tolist()
    whole = encode((documents()[i] for i in order), small_tokenizer()).tokens
    for share in (0.25, 0.5):
        number = round(share * len(whole))
        part = encode((documents()[i] for i in order), small_tokenizer(), max_tokens=number).tokens
        assert len(part) == number and (part == whole[:number]).all()
