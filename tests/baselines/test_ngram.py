"""The n-gram language model: its probabilities, and fewer bits with more text and context."""

import pytest

from stages.baselines._baseline import Score
from stages.baselines.ngram import Ngram
from stages.tasks._task import TASKS
from tests.small import documents

bits_per_byte = Score(TASKS["language_modelling"], "bits_per_byte")
TEXTS = [{"text": " ".join(document)[:2000]} for document in documents()[:30]]
TRAIN, VALIDATION, TEST = TEXTS[:20], TEXTS[20:25], TEXTS[25:]


def fitted(train: list[dict[str, str]], **settings) -> Ngram:
    model = Ngram(**settings)
    model.fit(train, VALIDATION, bits_per_byte)
    return model


def test_probability_by_hand() -> None:
    """The text "abab" has a and b twice each, and b twice after a. Below the empty context each
    byte has the probability 1/256."""
    model = fitted([{"text": "abab"}], orders=[2])
    unigram = (2 + 2 / 256) / (4 + 2)
    assert model.probability(ord("b"), b"") == pytest.approx(unigram)
    assert model.probability(ord("b"), b"a") == pytest.approx((2 + 1 * unigram) / (2 + 1))
    assert model.probability(ord("z"), b"") == pytest.approx((2 / 256) / 6)
    assert model.probability(ord("b"), b"z") == pytest.approx(unigram)


@pytest.mark.parametrize("context", [b"", b"t", b"the ", b"\xff\x00", b"cla"])
def test_probability_of_all_bytes_adds_up_to_one(context) -> None:
    model = fitted(TRAIN)
    assert sum(model.probability(b, context) for b in range(256)) == pytest.approx(1)


@pytest.mark.slow
def test_ngram_takes_fewer_bits_with_more_text_and_more_context() -> None:
    def bits(train, *orders: int) -> float:
        return bits_per_byte(TEST, fitted(train, orders=orders).predict(TEST))

    assert 2 < bits(TRAIN, 5) < bits(TRAIN, 2) < bits(TRAIN, 1) < 5.5
    assert bits(TRAIN, 5) < 0.9 * bits(TRAIN[:2], 5)
