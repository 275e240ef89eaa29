"""Masked language modelling: the chosen tokens, how they change, and pairs of texts."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.core.seeding import stream, torch_stream
from stages.models._heads import ModelWithHead, gather, initialise_head
from stages.objectives._masking import MaskedObjective, Masking
from stages.objectives.mlm import LEAST_PAIR, MLM
from stages.optimizers.adamw import AdamW
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.corpus import encode
from stages.text.packing import Packing, Row
from stages.text.tokenizer import BOS_ID, EOS_ID, MASK_ID, NUM_SPECIAL, Vocabulary
from stages.training.device import Device
from stages.training.loop import accumulate
from stages.training.pretraining import PretrainingData
from tests.small import VOCAB_SIZE, documents, headless, small_corpus, small_model, small_tokenizer

VOCABULARY = Vocabulary(VOCAB_SIZE)


def row_of(length: int, *, seed: int) -> Row:
    text = stream(seed, "text").integers(NUM_SPECIAL, VOCAB_SIZE - 100, length)
    return Row(np.array([BOS_ID, *text, EOS_ID]), np.ones(length + 2, dtype=int))


def collated(objective: MaskedObjective, rows: list[Row], *, seed: int = 0) -> Batch:
    return objective.collate(rows, rngs=[stream(seed, "mask", i) for i in range(len(rows))])


@given(length=st.integers(1, 60), mask_prob=st.sampled_from([0.15, 0.4]), seed=st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_the_original_can_be_put_together_again(length, mask_prob, seed) -> None:
    """Labels at their positions restore the original; the rate is exact; special ids stay."""
    row = row_of(length, seed=seed)
    batch = collated(MLM(VOCABULARY, length + 2, Masking(mask_prob=mask_prob)), [row], seed=seed)
    assert batch.target_positions is not None and batch.labels is not None
    restored = batch.input_ids[0].numpy().copy()
    real = batch.labels[0].numpy() != IGNORE_INDEX
    positions = batch.target_positions[0].numpy()[real]
    restored[positions] = batch.labels[0].numpy()[real]
    assert np.array_equal(restored, row.tokens)
    assert len(np.unique(positions)) == real.sum() == max(1, round(mask_prob * length))
    assert (row.tokens[positions] >= NUM_SPECIAL).all()
    assert batch.num_targets == {"mlm": int(real.sum())}


def test_of_the_chosen_80_percent_are_masked_and_10_kept() -> None:
    """Shares are within 4 standard deviations of a binomial of about 9,600 draws."""
    objective = MLM(VOCABULARY, 128)
    rows = [row_of(126, seed=i) for i in range(500)]
    batch = collated(objective, rows)
    assert batch.target_positions is not None and batch.labels is not None
    real = batch.labels != IGNORE_INDEX
    inputs = batch.input_ids.gather(1, batch.target_positions)[real]
    labels = batch.labels[real]
    for observed, expected in (
        ((inputs == MASK_ID).float().mean().item(), 0.8),
        ((inputs == labels).float().mean().item(), 0.1 + 0.1 / len(VOCABULARY.regular_ids)),
    ):
        assert abs(observed - expected) < 4 * (expected * (1 - expected) / len(labels)) ** 0.5


def test_loss_is_over_the_masked_positions_alone() -> None:
    """The loss equals cross-entropy on full logits at these positions."""
    batch = collated(MLM(VOCABULARY, 32), [row_of(30, seed=1), row_of(30, seed=2)])
    model = small_model("encoder").eval()
    _, loss_sum = MLM(VOCABULARY, 32).loss(headless(model), batch)["mlm"]
    assert batch.target_positions is not None and batch.labels is not None
    full = torch.full_like(batch.input_ids, IGNORE_INDEX)
    full.scatter_(1, batch.target_positions[:, :4], batch.labels[:, :4])
    logits = model.unembed(model(batch))
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), full.flatten(), ignore_index=IGNORE_INDEX, reduction="sum"
    )
    assert (batch.labels[:, 4:] == IGNORE_INDEX).all()
    torch.testing.assert_close(loss_sum, expected)


def pairing(next_sentence: str, *, max_tokens: int = 64) -> Any:
    return MLM(small_tokenizer(), max_tokens, next_sentence=next_sentence)  # type: ignore[arg-type]


def packed_rows(number: int, *, max_tokens: int = 64, lines: int | None = None) -> list[Row]:
    """Rows of real text, each with another row; ``lines`` is the number of lines of a document."""
    texts = documents()
    if lines is not None:
        texts = [text[at : at + lines] for text in texts for at in range(0, len(text), lines)]
    packing = Packing(encode(texts, small_tokenizer()), max_tokens, seed=1)
    return [replace(packing.row(i), other=packing.row(i + number)) for i in range(number)]


def documents_of(row: Row) -> list[np.ndarray]:
    return [row.tokens[row.document_ids == i] for i in range(1, row.document_ids[-1] + 1)]


def pairs_in(objective: MLM, row: Row, *, seed: int) -> list[tuple[Any, Any, Any, Any]]:
    """(the document as it was, first text, second text, label) of each pair made of a row."""
    paired, segment_ids, positions, labels = objective.pair(row, rng=stream(seed, "pairs"))
    assert len(paired.tokens) == len(row.tokens)
    assert np.array_equal(paired.document_ids, row.document_ids)
    untouched = ~np.isin(row.document_ids, row.document_ids[positions])
    assert np.array_equal(paired.tokens[untouched], row.tokens[untouched])
    assert not segment_ids[untouched].any()
    pairs = []
    for position, label in zip(positions, labels, strict=True):
        here = row.document_ids == row.document_ids[position]
        tokens, second = paired.tokens[here], segment_ids[here].argmax()
        assert here.argmax() == position and len(tokens) >= LEAST_PAIR
        assert np.array_equal(segment_ids[here], np.arange(len(tokens)) >= second)
        specials = np.flatnonzero(tokens < NUM_SPECIAL)
        assert specials.tolist() == [0, second - 1, len(tokens) - 1]
        assert tokens[specials].tolist() == [BOS_ID, EOS_ID, EOS_ID]
        pairs.append((row.tokens[here], tokens[1 : second - 1], tokens[second:-1], label))
    return pairs


def test_texts_go_on_from_each_other_or_the_second_is_of_the_other_row() -> None:
    seen = [0, 0]
    for seed, row in enumerate(packed_rows(200)):
        assert row.other is not None
        for original, first, second, label in pairs_in(pairing("nsp"), row, seed=seed):
            seen[label] += 1
            assert small_tokenizer().starts_word[second[0]]
            assert np.array_equal(first, original[1 : 1 + len(first)])
            if label == 0:
                assert np.array_equal(second, original[1 + len(first) : -2])
            else:
                windows = [
                    document[at : at + len(second)]
                    for document in documents_of(row.other)
                    for at in range(len(document))
                ]
                assert any(np.array_equal(second, window) for window in windows)
    assert min(seen) > 50


def test_no_continuation_gives_itself_away_by_how_it_ends() -> None:
    """True and false continuations of a document that ends both lack a document's last token."""
    seen = [0, 0]
    for seed, row in enumerate(packed_rows(200, lines=2)):
        assert row.other is not None
        endings = [part[:-2] for part in documents_of(row.other) if part[-1] == EOS_ID]
        for original, _, second, label in pairs_in(pairing("nsp"), row, seed=seed):
            if original[-1] == EOS_ID:
                seen[label] += 1
                texts = endings if label else [original[:-2]]
                assert any(np.array_equal(second, text[-len(second) :]) for text in texts)
    assert min(seen) > 20


def test_swapped_texts_put_back_are_the_document_but_for_its_last_token() -> None:
    """Words at the ends of a row, which may be cut, are not swapped."""
    seen = [0, 0]
    for seed, row in enumerate(packed_rows(200)):
        for original, first, second, label in pairs_in(pairing("sop"), row, seed=seed):
            seen[label] += 1
            text = original[1:-1]
            words = np.flatnonzero(small_tokenizer().starts_word[text])
            begin, tail = words[0], len(text) - 1 - words[-1]  # whole words lie in between
            if label:
                assert small_tokenizer().starts_word[[first[begin], second[0]]].all()
                end = len(second) - tail
                put_back = [first[:begin], second[:end], first[begin:], second[end:]]
            else:
                put_back = [first, second]
            assert np.array_equal(np.concatenate(put_back), text[:-1])
    assert min(seen) > 50


@pytest.mark.parametrize("next_sentence", ["nsp", "sop"])
def test_micro_batches_change_no_pair(next_sentence) -> None:
    def micro_batches(rows: int) -> list[Batch]:
        packing = Packing(small_corpus(), 64, seed=1)
        objective = pairing(next_sentence)
        data = PretrainingData(packing, objective, batch_rows=4, micro_batch_rows=rows, seed=1)
        return data.micro_batches(2)

    (whole,), parts = micro_batches(4), micro_batches(2)
    assert whole.num_targets["next_sentence"] > 0
    for field in fields(Batch):
        value = getattr(whole, field.name)
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, torch.cat([getattr(part, field.name) for part in parts]))
    for term, number in whole.num_targets.items():
        assert number == sum(part.num_targets[term] for part in parts)


def paired_model(objective: MLM, **settings: Any) -> ModelWithHead:
    backbone = small_model("bert", **settings)
    model = ModelWithHead(backbone, objective.head(backbone))
    initialise_head(model.head, generator=torch_stream(1, "head"))
    return model


def fit_pairs(
    model: ModelWithHead, objective: MLM, batches: list[Batch], *, num_steps: int
) -> None:
    optimizer = AdamW(model, 0.0, torch.float32)
    device = Device("cpu", "float32", compile=False, threads=1)
    for step in range(num_steps):
        accumulate(model, objective, [batches[step % len(batches)]], device)
        optimizer.step(lr=1e-3)


@torch.no_grad()
def share_told(model: ModelWithHead, batch: Batch) -> float:
    """The share of correctly classified pairs; each class has at least a third of the pairs."""
    assert batch.pair_labels is not None and batch.pair_positions is not None
    real = batch.pair_labels != IGNORE_INDEX
    labels = batch.pair_labels[real]
    assert len(labels) >= 16 and 1 / 3 < labels.double().mean() < 2 / 3
    logits = model.head(gather(model.backbone(batch), batch.pair_positions))
    return (logits.argmax(-1)[real] == labels).double().mean().item()


@pytest.mark.parametrize("next_sentence", ["nsp", "sop"])
def test_one_batch_of_pairs_is_learnt(next_sentence) -> None:
    """Nine in ten are classified correctly; the more frequent class has at most two in three."""
    objective = pairing(next_sentence)
    batch = collated(objective, packed_rows(16))
    model = paired_model(objective, d_model=64)
    fit_pairs(model, objective, [batch], num_steps=60)
    assert share_told(model, batch) > 0.9
