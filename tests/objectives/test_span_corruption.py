"""Span corruption: inputs and targets together hold the original."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import comb
from scipy.stats import chisquare

from stages.core.seeding import stream
from stages.objectives.span_corruption import SpanCorruption
from stages.text.batch import IGNORE_INDEX
from stages.text.tokenizer import BOS_ID, EOS_ID, Vocabulary
from tests.objectives.rows import collated, row_of
from tests.small import VOCAB_SIZE

VOCABULARY = Vocabulary(VOCAB_SIZE)
OBJECTIVE = SpanCorruption(VOCABULARY, 512)
SENTINELS = VOCABULARY.sentinel_ids.tolist()


def put_together(inputs: list[int], targets: list[int]) -> list[int]:
    """The inputs with each sentinel replaced by the tokens that follow it in the targets."""
    spans: dict[int, list[int]] = {}
    current: list[int] = []
    for token in targets:
        if token in SENTINELS:
            current = spans.setdefault(token, [])
        else:
            current.append(token)
    return [token for each in inputs for token in (spans[each] if each in SENTINELS else [each])]


@given(lengths=st.lists(st.integers(0, 100), min_size=1, max_size=3), seed=st.integers(0, 999))
@settings(max_examples=100, deadline=None)
def test_inputs_and_targets_hold_the_original_of_each_document(lengths, seed) -> None:
    row = row_of(*lengths, seed=seed)
    batch: Any = collated(OBJECTIVE, [row], seed=seed)
    for number, length in enumerate(lengths, start=1):
        here = batch.decoder_document_ids == number
        inputs, targets = batch.input_ids[batch.document_ids == number].tolist(), batch.labels[here]
        shifted, targets = batch.decoder_input_ids[here].tolist(), targets.tolist()
        assert put_together(inputs, targets) == row.tokens[row.document_ids == number].tolist()
        assert not {BOS_ID, EOS_ID} & set(targets)
        assert shifted == [BOS_ID, *targets][: len(targets)]
        if length >= 2:
            marks = [t for t in targets if t in SENTINELS]
            assert marks == SENTINELS[: len(marks)]
            assert targets[-1] in SENTINELS  # the final sentinel, which the inputs lack
            assert targets[-1] not in inputs
    assert batch.num_targets["span_corruption"] == (batch.labels != IGNORE_INDEX).sum()


@given(length=st.integers(2, 500), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_noise_has_the_asked_density_and_number_of_spans(length, seed) -> None:
    noise = OBJECTIVE.noise_mask(length, rng=stream(seed, "noise"))
    expected = min(max(round(0.15 * length), 1), length - 1)
    assert noise.sum() == expected
    assert (np.diff(noise.astype(int), prepend=0) == 1).sum() == max(round(expected / 3), 1)
    assert noise[-1] and not noise[0]  # text begins and noise ends


def test_lengths_are_those_of_a_uniformly_drawn_composition() -> None:
    """The first of 10 spans of 30 noise tokens has k tokens in C(29 - k, 8) of C(29, 9) ways."""
    noises = [OBJECTIVE.noise_mask(200, rng=stream(seed, "noise")) for seed in range(3000)]
    begins = [int(noise.argmax()) for noise in noises]
    lengths = [int((~noise[at:]).argmax()) for noise, at in zip(noises, begins, strict=True)]
    counts = np.bincount(np.minimum(lengths, 9), minlength=10)[1:]  # 9 and more
    ways = np.array([comb(29 - k, 8) for k in range(1, 22)]) / comb(29, 9)
    expected = 3000 * np.append(ways[:8], ways[8:].sum())
    assert chisquare(counts, expected).pvalue > 0.001
