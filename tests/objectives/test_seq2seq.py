"""Objectives for encoder-decoders: inputs and targets together hold the original; what each noise
does; several tasks at once, which a model reads as each of them alone."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, poisson

from stages.core.seeding import stream
from stages.objectives.denoising import Denoising, infill, permute_sentences, span_lengths
from stages.objectives.multi_task import MultiTask
from stages.objectives.span_corruption import SpanCorruption
from stages.tasks._task import TASKS
from stages.tasks._text_form import TextToText
from stages.text.batch import IGNORE_INDEX
from stages.text.corpus import encode
from stages.text.packing import Packing, Row
from stages.text.tokenizer import BOS_ID, EOS_ID, MASK_ID, NUM_SPECIAL, Vocabulary
from tests.objectives.rows import collated, packed_rows, row_of
from tests.small import VOCAB_SIZE, small_tokenizer

VOCABULARY = Vocabulary(VOCAB_SIZE)
SPANS = SpanCorruption(VOCABULARY, 512)
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
@settings(max_examples=60, deadline=None)
def test_span_corruption_keeps_the_original_in_inputs_and_targets(lengths, seed) -> None:
    row = row_of(*lengths, seed=seed)
    batch: Any = collated(SPANS, [row], seed=seed)
    for number, length in enumerate(lengths, start=1):
        here = batch.decoder_document_ids == number
        inputs, targets = batch.input_ids[batch.document_ids == number].tolist(), batch.labels[here]
        shifted, targets = batch.decoder_input_ids[here].tolist(), targets.tolist()
        assert put_together(inputs, targets) == row.tokens[row.document_ids == number].tolist()
        assert not {BOS_ID, EOS_ID} & {*targets}
        assert shifted == [BOS_ID, *targets][: len(targets)]
        assert bool(targets) == (length >= 2)
        if targets:
            marks = [token for token in targets if token in SENTINELS]
            assert marks == SENTINELS[: len(marks)]
            assert targets[-1] in SENTINELS  # the final sentinel, which the inputs lack
            assert targets[-1] not in inputs


@given(length=st.integers(2, 500), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_noise_mask_has_the_asked_density_and_number_of_spans(length, seed) -> None:
    noise = SPANS.noise_mask(length, rng=stream(seed, "noise"))
    expected = min(max(round(0.15 * length), 1), length - 1)
    assert noise.sum() == expected
    assert (np.diff(noise.astype(int), prepend=0) == 1).sum() == max(round(expected / 3), 1)
    assert noise[-1] and not noise[0]  # text begins and noise ends


# Denoising ----------------------------------------------------------------------------------------

OFF: dict[str, Any] = {"infilling": 0.0, "permute_sentences": False}
NOISES: dict[str, Any] = {
    "infilling": 0.3,
    "permute_sentences": True,
    "mask_tokens": 0.15,
    "delete_tokens": 0.15,
    "rotate_documents": True,
}


@pytest.mark.parametrize("noises", [*([name] for name in NOISES), [*NOISES]], ids="-".join)
@pytest.mark.parametrize("max_tokens", [5, 100])
def test_denoising_writes_each_document_as_it_was(noises: list[str], max_tokens: int) -> None:
    """The decoder reads <bos> and the tokens before, the encoder a part of each document, with the
    tokens that the noise leaves."""
    rows = packed_rows(max_tokens, 40)
    noise = OFF | {name: NOISES[name] for name in noises}
    batch: Any = collated(Denoising(VOCABULARY, max_tokens, **noise), rows)
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
            inside = len({*document} - {BOS_ID, EOS_ID}) > 0
            num_text = len(document) - document.count(BOS_ID) - document.count(EOS_ID)
            if noises in (["permute_sentences"], ["rotate_documents"]):
                assert sorted(inputs) == sorted(document)
            elif noises == ["delete_tokens"] and inside:
                lost = min(max(1, round(0.15 * num_text)), num_text - 1)
                assert len(document) - len(inputs) == lost and MASK_ID not in inputs
            elif noises == ["mask_tokens"] and inside:
                assert inputs.count(MASK_ID) == max(1, round(0.15 * num_text))
    assert noisy


@given(
    length=st.integers(1, 300),
    rate=st.sampled_from([0.1, 0.3, 0.8]),
    mean_span_length=st.sampled_from([1.0, 3.0]),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_infill_hides_as_many_tokens_as_asked(length, rate, mean_span_length, seed) -> None:
    """Other tokens keep their order, with masks for hidden ones; the text gets no longer."""
    text = np.arange(NUM_SPECIAL, NUM_SPECIAL + length)  # each token says where it was
    rng, number = stream(seed, "noise"), max(1, round(rate * length))
    noisy = infill(text, span_lengths(number, mean_span_length, rng=rng), mask_id=MASK_ID, rng=rng)
    kept = noisy[noisy != MASK_ID]
    assert len(text) - len(kept) == number
    assert len(noisy) <= len(text)
    bounded = np.concatenate([text[:1] - 1, noisy, text[-1:] + 1])
    shown = (bounded[1:] != MASK_ID) & (bounded[:-1] != MASK_ID)
    assert (np.diff(kept) > 0).all() and (np.diff(bounded)[shown] == 1).all()


def test_permute_sentences_has_every_order_of_whole_sentences() -> None:
    text, starts = np.arange(9), np.isin(np.arange(9), (0, 1, 5))
    orders = [permute_sentences(text, starts, rng=stream(seed, "noise")) for seed in range(99)]
    expected = {sum(order, ()) for order in permutations([(0,), (1, 2, 3, 4), (5, 6, 7, 8)])}
    assert {tuple(order.tolist()) for order in orders} == expected


def test_span_lengths_are_poisson() -> None:
    """More than 6,000 spans have mean length 3; e^-3 of them are empty and insert a mask."""
    lengths = span_lengths(20_000, 3.0, rng=stream(1, "lengths"))
    assert lengths.sum() == 20_000
    counts = np.bincount(lengths.clip(max=9), minlength=10)  # 9 and more
    for mean, is_refused in ((3.0, False), (3.2, True)):
        shares = np.append(poisson.pmf(np.arange(9), mean), poisson.sf(8, mean))
        pvalue = chisquare(counts, shares * len(lengths)).pvalue
        assert pvalue < 1e-6 if is_refused else pvalue > 0.001


# Several tasks ------------------------------------------------------------------------------------

RECORD = {"task": {"name": "classification"}, "labels": ["list", "value"]}
ROWS = [
    {"id": str(i), "text": f"a {word} of the module", "label": ("list", "value")[i % 2]}
    for i, word in enumerate(["class", "method", "name", "object", "string", "function"])
]


@pytest.mark.parametrize("architecture", ["decoder", "encoder_decoder"])
def test_multi_task_documents_are_to_a_model_what_the_task_is(architecture) -> None:
    """What a decoder reads and writes of a document is one text."""
    form = TASKS["classification"].as_text("kind", RECORD)
    corpus = encode([[form.input(r), form.answer(r) or ""] for r in ROWS], small_tokenizer())
    objective = MultiTask(VOCABULARY, len(corpus.tokens))
    objective.architecture = architecture
    batch: Any = collated(objective, [Packing(corpus, len(corpus.tokens), seed=1).row(0)])
    inner = TASKS.build(RECORD["task"], RECORD["labels"], small_tokenizer(), 32, where="task")
    task = TextToText("kind", RECORD, inner)
    examples = {tuple(example.tokens): example for example in task.encode(ROWS)}
    writes = batch.decoder_input_ids is not None
    outputs = batch.decoder_document_ids if writes else batch.document_ids
    for number in range(1, len(ROWS) + 1):
        tokens = batch.input_ids[0][batch.document_ids[0] == number].tolist()
        read = tokens[: tokens.index(EOS_ID) + 1]
        one: Any = task.collate([examples.pop(tuple(read))], rngs=[])
        labels = batch.labels[0][outputs[0] == number].tolist()
        written = one.labels[0].tolist()
        if writes:
            shifted = batch.decoder_input_ids[0][outputs[0] == number].tolist()
            assert (shifted, labels) == (one.decoder_input_ids[0].tolist(), written)
        else:
            assert tokens == [*read, *written[:-1]]
            assert labels == [*[IGNORE_INDEX] * (len(read) - 1), *written]
    assert not examples


@pytest.mark.parametrize(
    ("begin", "end", "inputs", "targets"),
    [
        (0, 6, [2, 10, 11, 3], [12, 13, 3]),
        (0, 5, [2, 10, 11, 3], [12, 13]),
        (0, 3, [2, 10, 11], []),
        (2, 6, [11, 12, 13, 3], []),
        (3, 6, [12, 13, 3], []),
    ],
)
def test_multi_task_predicts_what_a_row_has_of_a_target(begin, end, inputs, targets) -> None:
    tokens = np.array([2, 10, 11, 12, 13, 3])[begin:end]  # <bos> text text target target <eos>
    starts = np.array([True, False, False, True, False, False])[begin:end]
    row = Row(tokens, np.ones(len(tokens)), starts_sentence=starts)
    pair = MultiTask(small_tokenizer(), 8).pair(row, rng=stream(0, "none"))
    assert [each.tolist() for each in pair] == [inputs, targets]
