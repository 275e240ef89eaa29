"""Encoded corpora keep their text and the beginnings of documents and sentences."""

import numpy as np

from stages.text.corpus import EncodedCorpus, document_order
from stages.text.tokenizer import BOS_ID, EOS_ID
from tests.small import documents, saved, small_corpus, small_tokenizer


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


def test_encoded_corpus_is_the_same_after_saving(tmp_path) -> None:
    saved(small_corpus(), tmp_path / "corpus")
    loaded = EncodedCorpus.load(tmp_path / "corpus")
    for name, array in vars(small_corpus()).items():
        assert np.array_equal(array, getattr(loaded, name))


def test_document_order_is_a_permutation() -> None:
    order = document_order(len(documents()), "train")
    assert sorted(order) == [*range(len(documents()))] != order.tolist()
