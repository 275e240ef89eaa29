"""Span corruption: inputs and targets together hold the original."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import comb
from scipy.stats import chisquare

from stages.core.seeding import stream
from stages.objectives.span_corruption import SpanCorruption
from stages.text.batch import IGNORE_INDEX
from stages.text.packing import Row
from stages.text.tokenizer import BOS_ID, EOS_ID, NUM_SPECIAL, Vocabulary
from tests.small import VOCAB_SIZE

VOCABULARY = Vocabulary(VOCAB_SIZE)
OBJECTIVE = SpanCorruption(VOCABULARY, 512)
SENTINELS = set(VOCABULARY.sentinel_ids.tolist())


def document(length: int, *, seed: int) -> np.ndarray:
    text = stream(seed, "text").integers(NUM_SPECIAL, VOCAB_SIZE - 100, length)
    return np.array([BOS_ID, *text, EOS_ID])


def put_together(inputs: np.ndarray, targets: np.ndarray) -> list[int]:
    """The inputs with each sentinel replaced by the tokens that follow it in the targets."""
    spans: dict[int, list[int]] = {}
    current: list[int] = []
    for token in targets.tolist():
        if token in SENTINELS:
            current = spans.setdefault(token, [])
        else:
            current.append(token)
    restored: list[int] = []
    for token in inputs.tolist():
        restored += spans[token] if token in SENTINELS else [token]
    return restored


@given(length=st.integers(0, 200), seed=st.integers(0, 999))
@settings(max_examples=120, deadline=None)
def test_inputs_and_targets_hold_the_original(length, seed) -> None:
    original = document(length, seed=seed)
    inputs, targets = OBJECTIVE.corrupt(
        Row(original, np.ones(len(original), int)), rng=stream(seed, "noise")
    )
    assert put_together(inputs, targets) == original.tolist()
    assert not {BOS_ID, EOS_ID} & set(targets.tolist())
    if length >= 2:
        marks = [t for t in targets.tolist() if t in SENTINELS]
        assert marks == VOCABULARY.sentinel_ids[: len(marks)].tolist()
        assert targets[-1] in SENTINELS  # the final sentinel, which the inputs lack
        assert targets[-1] not in inputs


@given(length=st.integers(2, 500), seed=st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_noise_has_the_asked_density_and_number_of_spans(length, seed) -> None:
    noise = OBJECTIVE.noise_mask(length, rng=stream(seed, "noise"))
    expected = min(max(round(0.15 * length), 1), length - 1)
    assert noise.sum() == expected
    spans = int((np.diff(noise.astype(int), prepend=0) == 1).sum())
    assert spans == max(round(expected / 3), 1)
    assert not noise[0]  # text begins
    assert noise[-1]  # and noise ends


def test_lengths_are_those_of_a_uniformly_drawn_composition() -> None:
    """The first of 10 spans of 30 noise tokens has k tokens in C(29 - k, 8) of C(29, 9) ways."""
    noises = [OBJECTIVE.noise_mask(200, rng=stream(seed, "noise")) for seed in range(3000)]
    begins = [int(noise.argmax()) for noise in noises]
    lengths = [int((~noise[at:]).argmax()) for noise, at in zip(noises, begins, strict=True)]
    counts = np.bincount(np.minimum(lengths, 9), minlength=10)[1:]  # 9 and more
    ways = np.array([comb(29 - k, 8) for k in range(1, 22)]) / comb(29, 9)
    expected = 3000 * np.append(ways[:8], ways[8:].sum())
    assert chisquare(counts, expected).pvalue > 0.001


def test_documents_of_a_row_are_corrupted_each_by_itself() -> None:
    tokens = np.concatenate([document(30, seed=1), document(20, seed=2)])
    row = Row(tokens, np.repeat([1, 2], [32, 22]))
    batch = OBJECTIVE.collate([row], rngs=[stream(0, "noise")])
    assert batch.labels is not None and batch.decoder_input_ids is not None
    assert batch.decoder_document_ids is not None
    for number, length in ((1, 30), (2, 20)):
        inputs = batch.input_ids[batch.document_ids == number].numpy()
        here = batch.decoder_document_ids == number
        targets = batch.labels[here].numpy()
        expected = document(length, seed=number).tolist()
        assert put_together(inputs, targets) == expected
        shifted = batch.decoder_input_ids[here].numpy()
        assert shifted.tolist() == [BOS_ID, *targets[:-1]]
    assert batch.num_targets["span_corruption"] == (batch.labels != IGNORE_INDEX).sum()
