"""Masked language models: the chosen tokens or spans, how they change, pairs of texts, and what a
student learns from a teacher."""

import math
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from stages.core.seeding import stream, torch_stream
from stages.models._heads import ModelWithHead, initialise_head
from stages.objectives.distillation import Distillation, soft_cross_entropy
from stages.objectives.mlm import LEAST_PAIR, MLM
from stages.objectives.span_mlm import SpanMLM
from stages.text.batch import IGNORE_INDEX
from stages.text.corpus import encode
from stages.text.packing import Packing, Row
from stages.text.tokenizer import BOS_ID, EOS_ID, MASK_ID, NUM_SPECIAL, Vocabulary
from tests.objectives.rows import collated, packed_rows, row_of
from tests.small import VOCAB_SIZE, documents, headless, small_model, small_tokenizer

VOCABULARY, TOKENIZER = Vocabulary(VOCAB_SIZE), small_tokenizer()


@given(length=st.integers(1, 60), mask_prob=st.sampled_from([0.15, 0.4]), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_mlm_labels_put_the_original_together_again(length, mask_prob, seed) -> None:
    """The rate is exact, and special tokens stay."""
    row = row_of(length, seed=seed)
    batch: Any = collated(MLM(VOCABULARY, length + 2, mask_prob=mask_prob), [row], seed=seed)
    restored, real = batch.input_ids[0].numpy().copy(), batch.labels[0].numpy() != IGNORE_INDEX
    positions = batch.target_positions[0].numpy()[real]
    restored[positions] = batch.labels[0].numpy()[real]
    assert np.array_equal(restored, row.tokens)
    assert len(np.unique(positions)) == real.sum() == max(1, round(mask_prob * length))
    assert (row.tokens[positions] >= NUM_SPECIAL).all()


def test_mlm_masks_80_percent_of_the_chosen_and_keeps_10() -> None:
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


# Pairs of texts -----------------------------------------------------------------------------------


def pairing(next_sentence: Any) -> MLM:
    return MLM(TOKENIZER, 64, next_sentence=next_sentence)


def rows_with_another(number: int, *, lines: int) -> list[Row]:
    """Rows of real text, each with another row; a document has this number of lines."""
    texts = [text[at : at + lines] for text in documents() for at in range(0, len(text), lines)]
    packing = Packing(encode(texts, TOKENIZER), 64, seed=1)
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


@pytest.mark.parametrize("lines", [1000, 2])
def test_nsp_continues_a_text_or_takes_another_row_s(lines: int) -> None:
    """True and false continuations of a document that ends both lack a document's last token, so
    that none gives itself away by how it ends."""
    seen = [0, 0]
    for seed, row in enumerate(rows_with_another(200, lines=lines)):
        other: Any = row.other
        theirs = [other.tokens[other.document_ids == i] for i in np.unique(other.document_ids)]
        for original, first, second, label in pairs_in(pairing("nsp"), row, seed=seed):
            seen[label] += 1
            assert TOKENIZER.starts_word[second[0]]
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


def test_sop_swaps_texts_that_put_back_are_the_document_but_for_its_last_token() -> None:
    """Words at the ends of a row, which may be cut, are not swapped."""
    seen, starts_word = [0, 0], TOKENIZER.starts_word
    for seed, row in enumerate(rows_with_another(200, lines=1000)):
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


# Spans --------------------------------------------------------------------------------------------


WORDS = np.flatnonzero(TOKENIZER.starts_word[: -len(TOKENIZER.sentinel_ids)])  # one token each


def spans_of(batch: Any, row: int) -> dict[tuple[int, int], list[int]]:
    """(left boundary, right boundary) -> the positions predicted between them."""
    real = batch.labels[row] != IGNORE_INDEX
    boundaries = batch.extra[row][real].tolist()
    spans: dict[tuple[int, int], list[int]] = {}
    for position, ends in zip(batch.target_positions[row][real].tolist(), boundaries, strict=True):
        spans.setdefault(tuple(ends), []).append(position)
    return spans


@given(max_tokens=st.integers(4, 200), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_spans_are_whole_words_inside_one_document(max_tokens, seed) -> None:
    """The token on each side of a span is of the same document and is not chosen itself."""
    rows = packed_rows(max_tokens, 3, seed=seed)
    batch = collated(SpanMLM(TOKENIZER, max_tokens), rows, seed=seed)
    for i, row in enumerate(rows):
        spans = spans_of(batch, i)
        chosen = [position for positions in spans.values() for position in positions]
        assert len({*chosen}) == len(chosen) <= np.ceil(0.15 * max_tokens)
        for (left, right), positions in spans.items():
            assert positions == [*range(left + 1, right)]
            assert not {left, right} & {*chosen}
            assert batch.input_ids[i, [left, right]].tolist() == row.tokens[[left, right]].tolist()
            assert len({*row.document_ids[left : right + 1]}) == 1
            assert (row.tokens[positions] >= NUM_SPECIAL).all()
            assert TOKENIZER.starts_word[row.tokens[left + 1]]
            assert TOKENIZER.starts_word[row.tokens[right]] or row.tokens[right] == EOS_ID


def test_spans_have_geometric_lengths_cut_off_at_10_and_uniform_places() -> None:
    """About 3,200 spans, of which one in 160 is cut short by the budget."""
    rows = [row_of(4_000, seed=i, tokens=WORDS) for i in range(20)]
    batch: Any = collated(SpanMLM(TOKENIZER, 4_002), rows)
    counts = np.bincount([len(span) for i in range(20) for span in spans_of(batch, i).values()])[1:]
    for p, is_refused in ((0.2, False), (0.25, True)):
        shares = p * (1 - p) ** np.arange(10) / (1 - (1 - p) ** 10)
        pvalue = chisquare(counts, shares * counts.sum()).pvalue
        assert pvalue < 1e-6 if is_refused else pvalue > 0.001
    in_first_half = (batch.target_positions < 2_000).float().mean().item()
    assert in_first_half == pytest.approx(0.5, abs=0.04)


def test_a_boundary_prediction_sees_the_boundaries_and_the_place_alone() -> None:
    """The loss equals the formula, computed token by token from the states at the boundaries."""
    objective = SpanMLM(TOKENIZER, 64)
    batch: Any = collated(objective, packed_rows(64, 3))
    backbone: Any = small_model("encoder").eval()
    head: Any = objective.head(backbone)
    initialise_head(head, generator=torch_stream(1, "head"))
    states, expected = backbone(batch), torch.zeros(())
    for i in range(3):
        for (left, right), positions in spans_of(batch, i).items():
            for place, position in enumerate(positions):
                h = torch.cat([states[i, left], states[i, right], head.positions.weight[place]])
                h = head.first_norm(F.gelu(head.first(h)))
                y = head.second_norm(F.gelu(head.second(h)))
                logits = backbone.token_embedding.weight @ y + head.bias
                label = batch.labels[i][batch.target_positions[i] == position][0]
                expected = expected - logits.log_softmax(0)[label]
    terms = objective.loss(ModelWithHead(backbone, head), batch)
    torch.testing.assert_close(terms["boundary"][1], expected)


# Distillation -------------------------------------------------------------------------------------

ROWS = [row_of(30, seed=i) for i in range(3)]


def test_soft_loss_of_a_case_by_hand() -> None:
    """The teacher's logits (ln 9, 0) give 3/4 and 1/4 at T = 2, the student's (0, 0) 1/2 each: the
    cross-entropy is ln 2, times T^2 4 ln 2. A position that does not count adds nothing."""
    teacher = torch.tensor([[[math.log(9), 0.0], [5.0, -5.0]]])
    student = torch.tensor([[[0.0, 0.0], [1.0, 2.0]]])
    first = torch.tensor([[True, False]])
    loss = soft_cross_entropy(student, teacher, first, temperature=2.0)
    assert loss.item() == pytest.approx(4 * math.log(2))


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_a_student_that_is_its_teacher_has_nothing_to_learn(temperature) -> None:
    """The soft loss has no gradient, and the cosine distance is 0. Only the student learns: the
    teacher gets no gradient and stays as it is."""
    student, teacher = small_model("encoder").eval(), small_model("encoder")
    before = deepcopy(teacher.state_dict())
    objective = Distillation(Vocabulary(VOCAB_SIZE), 32, temperature=temperature)
    objective.teacher = teacher.requires_grad_(False).eval()
    batch: Any = collated(objective, ROWS)
    terms = objective.loss(headless(student), batch)
    assert terms["cosine"][1].item() == pytest.approx(0, abs=1e-4)
    terms["soft"][1].backward(retain_graph=True)
    assert all(p.grad is None or p.grad.abs().max() < 1e-4 for p in student.parameters())
    terms["mlm"][1].backward()
    assert student.token_embedding.weight.grad.abs().max() > 1e-3
    assert all(p.grad is None for p in teacher.parameters())
    assert all(torch.equal(weight, before[name]) for name, weight in teacher.state_dict().items())


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_learn_from_copies_every_second_layer(family) -> None:
    """The student copies blocks 0, 2 and 4 of five, and all weights outside blocks."""
    teacher = small_model(family, num_layers=5, seed=1)
    for weight in teacher.parameters():  # norms and biases are alike in fresh models
        torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(weight.numel()))
    student = small_model(family, num_layers=3, seed=2)
    Distillation(Vocabulary(VOCAB_SIZE), 32).learn_from(teacher, student)
    for block, theirs in zip(student.blocks, teacher.blocks[::2], strict=True):
        for own, copied in zip(block.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(own, copied) and own is not copied
    in_blocks = {weight for block in student.blocks for weight in block.parameters()}
    theirs = dict(teacher.named_parameters())
    outside = [name for name, w in student.named_parameters() if w not in in_blocks]
    assert len(outside) > 2
    assert all(torch.equal(student.get_parameter(name), theirs[name]) for name in outside)


@pytest.mark.parametrize(
    ("theirs", "message"),
    [({"num_layers": 4, "d_ff": 32}, "all sizes"), ({"num_layers": 6}, "num_layers 3")],
)
def test_learn_from_refuses_a_teacher_of_another_shape(theirs, message) -> None:
    teacher = small_model("encoder", **theirs)
    with pytest.raises(ValueError, match=message):
        Distillation(Vocabulary(VOCAB_SIZE), 32).learn_from(teacher, small_model("encoder"))
