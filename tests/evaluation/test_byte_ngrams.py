"""The byte n-gram model, compared with the baseline, which has the same formula but shares no
code."""

from math import log2

import numpy as np
import pytest

from stages.baselines._baseline import Score
from stages.baselines.ngram import Ngram
from stages.evaluation import byte_ngrams
from stages.evaluation.byte_ngrams import ORDER, ByteNgrams
from stages.kinds._kind import KINDS
from tests.small import documents

SENTENCES = [sentence for document in documents()[:15] for sentence in document]
CORPUS, TEXTS = SENTENCES[:-40], [*SENTENCES[-40:], "", "x", "größer als \N{SNOWMAN}"]


def bits(corpus: list[str], texts: list[str], **settings: int) -> np.ndarray:
    model = ByteNgrams([text.encode() for text in texts], **settings)
    model.count(text.encode() for text in corpus)
    return model.bits()


def of_baseline(corpus: list[str], texts: list[str], order: int) -> list[float]:
    """Returns the baseline's bits, without the bits of the mark at the beginning."""
    rows = [{"text": f"\n{text}"} for text in corpus]
    baseline = Ngram(orders=[order])
    baseline.fit(rows, [], Score(KINDS["language_modelling"], "bits_per_byte"))
    begins = baseline.bits("\n", order)
    return [baseline.bits(f"\n{text}", order) - begins for text in texts]


@pytest.mark.parametrize("order", [1, 3, ORDER])
def test_bits_are_those_of_the_baseline(order: int) -> None:
    assert bits(CORPUS, TEXTS, order=order) == pytest.approx(of_baseline(CORPUS, TEXTS, order))


def test_bits_by_hand() -> None:
    """A mark and the text "ab" have each of their three bytes once, and b once after a."""
    one = (1 + 3 / 256) / (3 + 3)
    begins_with_a = (1 + 1 * one) / (1 + 1)
    b_after_a = (1 + 1 * one) / (1 + 1)
    assert bits(["ab"], ["ab"], order=2) == pytest.approx([-log2(begins_with_a * b_after_a)])
    assert bits(["ab"], ["b"], order=2) == pytest.approx([-log2(1 * one / 2)])
    assert bits([], ["ab"]) == pytest.approx([16])


@pytest.mark.parametrize("context", [b"", b"t", b"the num", b"\xff\x00", b"\n"])
def test_bits_are_of_probabilities_that_add_up_to_one(context: bytes) -> None:
    """The probabilities of the 256 bytes after a context add up to 1. Bits of the context cancel
    out."""
    model = ByteNgrams([context, *(context + bytes([byte]) for byte in range(256))])
    model.count(text.encode() for text in CORPUS)
    before, *with_one_more = model.bits()
    assert np.sum(2 ** (before - np.array(with_one_more))) == pytest.approx(1)


def test_bits_do_not_depend_on_the_parts_of_a_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bits(CORPUS, TEXTS)
    monkeypatch.setattr(byte_ngrams, "BATCH_BYTES", 1000)
    assert (bits(CORPUS, TEXTS) == whole).all()
