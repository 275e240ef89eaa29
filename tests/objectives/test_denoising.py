"""Denoising: each noise does what it says, and the targets are the document as it was."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, poisson

from stages.core.seeding import stream
from stages.objectives.denoising import Denoising, infill, permute_sentences, span_lengths
from stages.text.batch import IGNORE_INDEX
from stages.text.tokenizer import BOS_ID, EOS_ID, MASK_ID, NUM_SPECIAL, Vocabulary
from tests.objectives.rows import collated, packed_rows
from tests.small import VOCAB_SIZE

VOCABULARY = Vocabulary(VOCAB_SIZE)
OFF: dict[str, Any] = {"infilling": 0.0, "permute_sentences": False}
NOISES: list[dict[str, Any]] = [
    {"infilling": 0.3},
    {"permute_sentences": True},
    {"mask_tokens": 0.15},
    {"delete_tokens": 0.15},
    {"rotate_documents": True},
]


def distinct(length: int) -> np.ndarray:
    """A text without repetitions, so that each token says where it was."""
    return np.arange(NUM_SPECIAL, NUM_SPECIAL + length)


@pytest.mark.parametrize("noise", [*NOISES, {k: v for each in NOISES for k, v in each.items()}])
@pytest.mark.parametrize("max_tokens", [5, 100])
def test_the_decoder_writes_each_document_as_it_was(noise, max_tokens) -> None:
    """The decoder reads <bos> and the tokens before, the encoder a part of each document."""
    rows = packed_rows(max_tokens, 40)
    batch: Any = collated(Denoising(VOCABULARY, max_tokens, **OFF | noise), rows)
    noisy = 0
    for i, row in enumerate(rows):
        for number in np.unique(row.document_ids):
            document = row.tokens[row.document_ids == number].tolist()
            here = batch.decoder_document_ids[i] == number
            text = document[1:] if document[0] == BOS_ID else document
            assert batch.labels[i][here].tolist() == text
            assert batch.decoder_input_ids[i][here].tolist() == [BOS_ID, *text][: len(text)]
            inputs = batch.input_ids[i][batch.document_ids[i] == number].tolist()
            assert 1 <= len(inputs) <= len(document)
            for end, special in ((0, BOS_ID), (-1, EOS_ID)):
                assert (inputs[end] == special) == (document[end] == special)
            noisy += inputs != document
    assert noisy
    assert batch.num_targets == {"denoising": int((batch.labels != IGNORE_INDEX).sum())}


@given(
    length=st.integers(1, 300),
    rate=st.sampled_from([0.1, 0.3, 0.8]),
    mean_span_length=st.sampled_from([1.0, 3.0]),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_infilling_hides_as_many_tokens_as_asked(length, rate, mean_span_length, seed) -> None:
    """Other tokens keep their order, with masks for hidden ones; the text gets no longer."""
    text = distinct(length)
    rng, number = stream(seed, "noise"), max(1, round(rate * length))
    noisy = infill(text, span_lengths(number, mean_span_length, rng=rng), mask_id=MASK_ID, rng=rng)
    kept = noisy[noisy != MASK_ID]
    assert len(text) - len(kept) == number
    assert len(noisy) <= len(text)
    bounded = np.concatenate([text[:1] - 1, noisy, text[-1:] + 1])
    shown = (bounded[1:] != MASK_ID) & (bounded[:-1] != MASK_ID)
    assert (np.diff(kept) > 0).all() and (np.diff(bounded)[shown] == 1).all()


def test_masks_stand_for_poisson_many_tokens() -> None:
    """More than 6,000 spans have mean length 3; e^-3 of them are empty and insert a mask."""
    lengths = span_lengths(20_000, 3.0, rng=stream(1, "lengths"))
    assert lengths.sum() == 20_000
    counts = np.bincount(lengths.clip(max=9), minlength=10)  # 9 and more
    for mean, is_refused in ((3.0, False), (3.2, True)):
        shares = np.append(poisson.pmf(np.arange(9), mean), poisson.sf(8, mean))
        pvalue = chisquare(counts, shares * len(lengths)).pvalue
        assert pvalue < 1e-6 if is_refused else pvalue > 0.001


def test_each_order_of_the_sentences_is_as_likely() -> None:
    text, starts = distinct(9), np.isin(np.arange(9), (0, 2, 5))
    orders = [permute_sentences(text, starts, rng=stream(i, "noise")) for i in range(1200)]
    observed, counts = np.unique(orders, axis=0, return_counts=True)
    assert abs(counts - 200).max() < 4 * (1200 * 1 / 6 * 5 / 6) ** 0.5
    one, two, three = text[:2].tolist(), text[2:5].tolist(), text[5:].tolist()
    expected = [sum(order, []) for order in permutations([one, two, three])]
    assert sorted(observed.tolist()) == sorted(expected)
