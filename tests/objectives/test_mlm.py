"""Masked language modelling: the chosen tokens, how they change, and pairs of texts."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.core.seeding import stream, torch_stream
from stages.models._heads import ModelWithHead, gather, initialise_head
from stages.objectives.mlm import LEAST_PAIR, MLM
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.corpus import encode
from stages.text.packing import Packing, Row
from stages.text.tokenizer import BOS_ID, EOS_ID, MASK_ID, NUM_SPECIAL, Vocabulary
from stages.training.pretraining import PretrainingData
from tests.objectives.rows import collated, row_of
from tests.small import VOCAB_SIZE, documents, headless, small_corpus, small_model, small_tokenizer

VOCABULARY = Vocabulary(VOCAB_SIZE)


@given(length=st.integers(1, 60), mask_prob=st.sampled_from([0.15, 0.4]), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_the_original_can_be_put_together_again(length, mask_prob, seed) -> None:
    """Labels at their positions restore the original; the rate is exact; special ids stay."""
    row = row_of(length, seed=seed)
    objective = MLM(VOCABULARY, length + 2, mask_prob=mask_prob)
    batch: Any = collated(objective, [row], seed=seed)
    restored, real = batch.input_ids[0].numpy().copy(), batch.labels[0].numpy() != IGNORE_INDEX
    positions = batch.target_positions[0].numpy()[real]
    restored[positions] = batch.labels[0].numpy()[real]
    assert np.array_equal(restored, row.tokens)
    assert len(np.unique(positions)) == real.sum() == max(1, round(mask_prob * length))
    assert (row.tokens[positions] >= NUM_SPECIAL).all()
    assert batch.num_targets == {"mlm": int(real.sum())}


def test_of_the_chosen_80_percent_are_masked_and_10_kept() -> None:
    """Shares are within 4 standard deviations of a binomial of about 9,600 draws."""
    batch: Any = collated(MLM(VOCABULARY, 128), [row_of(126, seed=i) for i in range(500)])
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
    batch: Any = collated(MLM(VOCABULARY, 32), [row_of(30, seed=1), row_of(30, seed=2)])
    model = small_model("encoder").eval()
    _, loss_sum = MLM(VOCABULARY, 32).loss(headless(model), batch)["mlm"]
    full = torch.full_like(batch.input_ids, IGNORE_INDEX)
    full.scatter_(1, batch.target_positions[:, :4], batch.labels[:, :4])
    expected = F.cross_entropy(
        model.unembed(model(batch)).flatten(0, 1), full.flatten(), reduction="sum"
    )
    assert (batch.labels[:, 4:] == IGNORE_INDEX).all()
    torch.testing.assert_close(loss_sum, expected)


# Pairs of texts


def pairing(next_sentence: Any) -> MLM:
    return MLM(small_tokenizer(), 64, next_sentence=next_sentence)


def rows_with_another(number: int, *, lines: int | None = None) -> list[Row]:
    """Rows of real text, each with another row; ``lines`` is the number of lines of a document."""
    texts = documents()
    if lines is not None:
        texts = [text[at : at + lines] for text in texts for at in range(0, len(text), lines)]
    packing = Packing(encode(texts, small_tokenizer()), 64, seed=1)
    return [replace(packing.row(i), other=packing.row(i + number)) for i in range(number)]


def pairs_in(objective: MLM, row: Row, *, seed: int) -> list[tuple[Any, Any, Any, Any]]:
    """(the document as it was, first text, second text, label) of each pair made of a row; checks
    their form and that nothing else changes."""
    paired, segment_ids, positions, labels = objective.pair(row, rng=stream(seed, "pairs"))
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


@pytest.mark.parametrize("lines", [None, 2])
def test_texts_go_on_from_each_other_or_the_second_is_of_the_other_row(lines) -> None:
    """True and false continuations of a document that ends both lack a document's last token, so
    that none gives itself away by how it ends."""
    seen = [0, 0]
    for seed, row in enumerate(rows_with_another(200, lines=lines)):
        other: Any = row.other
        theirs = [other.tokens[other.document_ids == i] for i in np.unique(other.document_ids)]
        for original, first, second, label in pairs_in(pairing("nsp"), row, seed=seed):
            seen[label] += 1
            assert small_tokenizer().starts_word[second[0]]
            assert np.array_equal(first, original[1 : 1 + len(first)])
            n, ended = len(second), original[-1] == EOS_ID
            if label == 0:
                texts = [original[1 + len(first) : -2]]
            elif ended:
                texts = [text[:-2][-n:] for text in theirs if text[-1] == EOS_ID]
            else:
                texts = [text[at : at + n] for text in theirs for at in range(len(text))]
            assert any(np.array_equal(second, text) for text in texts)
    assert min(seen) > 50


def test_swapped_texts_put_back_are_the_document_but_for_its_last_token() -> None:
    """Words at the ends of a row, which may be cut, are not swapped."""
    seen, starts_word = [0, 0], small_tokenizer().starts_word
    for seed, row in enumerate(rows_with_another(200)):
        for original, first, second, label in pairs_in(pairing("sop"), row, seed=seed):
            seen[label] += 1
            text = original[1:-1]
            words = np.flatnonzero(starts_word[text])
            begin, tail = words[0], len(text) - 1 - words[-1]  # whole words lie in between
            put_back = [first, second]
            if label:
                assert starts_word[[first[begin], second[0]]].all()
                end = len(second) - tail
                put_back = [first[:begin], second[:end], first[begin:], second[end:]]
            assert np.array_equal(np.concatenate(put_back), text[:-1])
    assert min(seen) > 50


@pytest.mark.parametrize("next_sentence", ["nsp", "sop"])
def test_pairs_are_classified_by_their_first_state_and_micro_batches_change_none(
    next_sentence,
) -> None:
    objective = pairing(next_sentence)

    def micro_batches(rows: int) -> list[Batch]:
        packing = Packing(small_corpus(), 64, seed=1)
        data = PretrainingData(packing, objective, batch_rows=4, micro_batch_rows=rows, seed=1)
        return data.micro_batches(2)

    parts: Any = micro_batches(2)
    whole: Any = micro_batches(4)[0]
    for field in fields(Batch):
        value = getattr(whole, field.name)
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, torch.cat([getattr(part, field.name) for part in parts]))
    for term, number in whole.num_targets.items():
        assert number == sum(part.num_targets[term] for part in parts) > 0
    backbone = small_model("bert")
    model = ModelWithHead(backbone, objective.head(backbone)).eval()
    initialise_head(model.head, generator=torch_stream(1, "head"))
    logits = model.head(gather(backbone(whole), whole.extra[..., 0])).flatten(0, 1)
    expected = F.cross_entropy(logits, whole.extra[..., 1].flatten(), reduction="sum")
    torch.testing.assert_close(objective.loss(model, whole)["next_sentence"][1], expected)
