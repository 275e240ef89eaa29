"""Denoising: each noise does what it says, and the targets are the document as it was."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, poisson

from stages.core.seeding import stream
from stages.objectives.denoising import (
    Denoising,
    infill,
    permute_sentences,
    span_lengths,
)
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.packing import Packing, Row
from stages.text.tokenizer import BOS_ID, EOS_ID, MASK_ID, NUM_SPECIAL, Vocabulary
from tests.small import VOCAB_SIZE, small_corpus

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


def rows_of(max_tokens: int, number: int, *, seed: int = 1) -> list[Row]:
    packing = Packing(small_corpus(), max_tokens, seed=seed)
    return [packing.row(i) for i in range(number)]


def collated(objective: Denoising, rows: list[Row], *, seed: int = 0) -> Batch:
    return objective.collate(rows, rngs=[stream(seed, "noise", i) for i in range(len(rows))])


@pytest.mark.parametrize("noise", [*NOISES, {k: v for each in NOISES for k, v in each.items()}])
@pytest.mark.parametrize("max_tokens", [5, 100])
def test_the_decoder_writes_each_document_as_it_was(noise, max_tokens) -> None:
    """The decoder reads <bos> and the tokens before, the encoder a part of each document."""
    rows = rows_of(max_tokens, 40)
    batch = collated(Denoising(VOCABULARY, max_tokens, **OFF | noise), rows)
    labels, decoder_inputs = batch.labels, batch.decoder_input_ids
    assert labels is not None and decoder_inputs is not None
    assert batch.decoder_document_ids is not None
    noisy = 0
    for i, row in enumerate(rows):
        for number in np.unique(row.document_ids):
            document = row.tokens[row.document_ids == number].tolist()
            here = batch.decoder_document_ids[i] == number
            text = document[1:] if document[0] == BOS_ID else document
            assert labels[i][here].tolist() == text
            assert decoder_inputs[i][here].tolist() == [BOS_ID, *text][: len(text)]
            inputs = batch.input_ids[i][batch.document_ids[i] == number].tolist()
            assert 1 <= len(inputs) <= len(document)
            for end, special in ((0, BOS_ID), (-1, EOS_ID)):
                assert (inputs[end] == special) == (document[end] == special)
            noisy += inputs != document
    assert noisy
    assert batch.num_targets == {"denoising": int((labels != IGNORE_INDEX).sum())}


@given(
    length=st.integers(1, 300),
    rate=st.sampled_from([0.1, 0.3, 0.8]),
    mean_span_length=st.sampled_from([1.0, 3.0]),
    seed=st.integers(0, 99),
)
@settings(max_examples=100, deadline=None)
def test_infilling_hides_as_many_tokens_as_asked(length, rate, mean_span_length, seed) -> None:
    """Other tokens keep their order, with masks for hidden ones; the text gets no longer."""
    text = distinct(length)
    rng, number = stream(seed, "noise"), max(1, round(rate * length))
    noisy = infill(text, span_lengths(number, mean_span_length, rng=rng), mask_id=MASK_ID, rng=rng)
    kept = noisy[noisy != MASK_ID]
    assert len(text) - len(kept) == number
    assert (np.diff(kept) > 0).all()
    assert len(noisy) <= len(text)
    bounded = np.concatenate([text[:1] - 1, noisy, text[-1:] + 1])
    neighbours = bounded[1:] - bounded[:-1]
    shown = (bounded[1:] != MASK_ID) & (bounded[:-1] != MASK_ID)
    assert (neighbours[shown] == 1).all()


def test_masks_stand_for_poisson_many_tokens() -> None:
    """More than 6,000 spans have mean length 3; e^-3 of them are empty and insert a mask."""
    lengths = span_lengths(20_000, 3.0, rng=stream(1, "lengths"))
    assert lengths.sum() == 20_000
    counts = np.bincount(lengths.clip(max=9), minlength=10)  # 9 and more
    shares = [*poisson.pmf(np.arange(9), 3.0), poisson.sf(8, 3.0)]
    assert chisquare(counts, np.array(shares) * len(lengths)).pvalue > 0.001
    other = [*poisson.pmf(np.arange(9), 3.2), poisson.sf(8, 3.2)]
    assert chisquare(counts, np.array(other) * len(lengths)).pvalue < 1e-6  # 3.2 is rejected


def test_the_spans_of_an_infilled_text_are_anywhere() -> None:
    """Tokens are hidden equally often, except near the ends, which fewer spans can cover. Masks
    are also inserted between neighbours."""
    texts = []
    for i in range(2000):
        rng = stream(i, "noise")
        lengths = span_lengths(15, 3.0, rng=rng)
        texts.append(infill(distinct(50), lengths, mask_id=MASK_ID, rng=rng))
    stays = np.bincount(np.concatenate(texts), minlength=NUM_SPECIAL + 50)[NUM_SPECIAL:] / 2000
    inner = stays[10:-10]
    assert abs(inner - inner.mean()).max() < 4.5 * (0.7 * 0.3 / 2000) ** 0.5
    assert stays.mean() == pytest.approx(0.7)
    between_neighbours = [
        noisy[at + 1] - noisy[at - 1] == 1
        for noisy in texts
        for at in np.flatnonzero(noisy[1:-1] == MASK_ID) + 1
        if MASK_ID not in (noisy[at - 1], noisy[at + 1])
    ]
    assert np.mean(between_neighbours) > 0.02


def test_each_order_of_the_sentences_is_as_likely() -> None:
    text, starts = distinct(9), np.isin(np.arange(9), (0, 2, 5))
    orders = [permute_sentences(text, starts, rng=stream(i, "noise")) for i in range(1200)]
    observed, counts = np.unique(orders, axis=0, return_counts=True)
    sentences = [text[:2].tolist(), text[2:5].tolist(), text[5:].tolist()]
    expected = {
        tuple(sentences[a] + sentences[b] + sentences[c])
        for a, b, c in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
    }
    assert {tuple(order.tolist()) for order in observed} == expected
    assert abs(counts - 200).max() < 4 * (1200 * 1 / 6 * 5 / 6) ** 0.5
