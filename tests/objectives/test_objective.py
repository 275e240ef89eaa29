"""What holds for every objective: its loss is a sum over labels, which no state has seen, and the
batch that a row is in changes nothing."""

from copy import deepcopy
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from stages.core.seeding import stream
from stages.models._heads import ModelWithHead, gather, initialise_head
from stages.objectives import _cross_entropy
from stages.objectives._cross_entropy import ROWS_AT_ONCE, cross_entropy
from stages.objectives._objective import OBJECTIVES, Objective
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.packing import Row
from tests.objectives.rows import collated, packed_rows, row_of
from tests.small import small_model, small_tokenizer

NOISY = {"infilling": 0.2, "mask_tokens": 0.1, "delete_tokens": 0.1, "rotate_documents": True}
# The family of a model that reads rows, and settings that differ from those of validation.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "mlm": ("modernbert", {"mask_prob": 0.4}),
    "mlm nsp": ("bert", {"next_sentence": "nsp"}),
    "mlm sop": ("bert", {"next_sentence": "sop", "mask_prob": 0.4}),
    "span_mlm": ("modernbert", {"mask_prob": 0.3}),
    "distillation": ("modernbert", {"mask_prob": 0.3, "temperature": 1.0}),
    "causal": ("phi", {}),
    "prefix_lm": ("phi", {}),
    "multi_task": ("phi", {}),
    "multi_task seq2seq": ("t5", {}),
    "bidirectional_lm": ("bilstm", {}),
    "span_corruption": ("t5", {"noise_density": 0.3, "mean_span_length": 2.0}),
    "denoising": ("t5", NOISY),
}
WEIGHTS = {
    "bidirectional_lm": {"forward": 0.5, "backward": 0.5},
    "distillation": {"soft": 5.0, "mlm": 2.0, "cosine": 1.0},
}
IN_ORDER = ["causal", "prefix_lm", "multi_task", "multi_task seq2seq", "denoising"]


def objective_of(case: str, **settings: Any) -> Objective:
    entry = {"name": case.split()[0], **settings}
    objective = OBJECTIVES.build(entry, small_tokenizer(), 64, where="objective")
    objective.architecture = small_model(CASES[case][0]).architecture
    return objective


def made(case: str) -> tuple[Objective, ModelWithHead]:
    """Returns an objective and a model that it trains."""
    family, settings = CASES[case]
    objective: Any = objective_of(case, **settings)
    if objective.has_teacher:
        objective.teacher = small_model(family, seed=2).requires_grad_(False).eval()
    backbone = small_model(family)
    head = objective.head(backbone)
    initialise_head(head, generator=torch.Generator().manual_seed(1))
    return objective, ModelWithHead(backbone, head).eval()


def test_cases_have_every_objective() -> None:
    assert {case.split()[0] for case in CASES} | {"none"} == {*OBJECTIVES.names()}


@torch.no_grad()
@pytest.mark.parametrize("case", CASES)
def test_collate_and_loss_of_a_row_do_not_depend_on_the_batch(case: str) -> None:
    (objective, model), rows = made(case), packed_rows(64, 4)
    before = deepcopy(rows)
    batch = collated(objective, rows)
    alone = [objective.collate([r], rngs=[stream(0, "row", i)]) for i, r in enumerate(rows)]
    for row, same in zip(rows, before, strict=True):
        assert np.array_equal(row.tokens, same.tokens), "collate changes no row"
    for term, (_, loss) in objective.loss(model, batch).items():
        assert batch.num_targets[term] == sum(one.num_targets[term] for one in alone) > 0
        torch.testing.assert_close(loss, sum(objective.loss(model, b)[term][1] for b in alone))


def states_and_labels(objective: Objective, model: Any, batch: Any) -> list[tuple[str, Any, Any]]:
    """Returns the states of all positions and a label or IGNORE_INDEX for each, by the term."""
    if objective.architecture == "bilstm":
        pairs = zip(model.directions(batch), batch.labels.unbind(dim=1), strict=True)
        return [(f, *pair) for f, pair in zip(("forward", "backward"), pairs, strict=True)]
    writes = batch.decoder_input_ids is not None
    states = model.decode(batch) if writes else model(batch)
    labels = batch.labels
    if batch.target_positions is not None:
        labels = torch.full_like(batch.input_ids, IGNORE_INDEX)
        rows, places = (batch.labels != IGNORE_INDEX).nonzero(as_tuple=True)
        labels[rows, batch.target_positions[rows, places]] = batch.labels[rows, places]
    return [(objective.term, states, labels)]


@torch.no_grad()
@pytest.mark.parametrize("case", CASES)
def test_loss_is_the_cross_entropy_of_the_labels_among_all_logits(case: str) -> None:
    objective, model = made(case)
    batch: Any = collated(objective, packed_rows(64, 4))
    terms = objective.loss(model, batch)
    for term, states, labels in states_and_labels(objective, model.backbone, batch):
        logits = model.backbone.unembed(states).flatten(0, 1)
        expected = F.cross_entropy(logits, labels.flatten(), reduction="sum")
        torch.testing.assert_close(terms[term][1], expected)
        assert batch.num_targets[term] == (labels != IGNORE_INDEX).sum()
    if "next_sentence" in terms:
        logits = model.head(gather(model.backbone(batch), batch.extra[..., 0])).flatten(0, 1)
        expected = F.cross_entropy(logits, batch.extra[..., 1].flatten(), reduction="sum")
        torch.testing.assert_close(terms["next_sentence"][1], expected)
    halves = {"bidirectional_lm": 0.5, "distillation": 2.0}
    assert {
        terms[term][0] for term, *_ in [*states_and_labels(objective, model.backbone, batch)]
    } == {halves.get(case, 1.0)}


@torch.no_grad()
@pytest.mark.parametrize("case", [*IN_ORDER, "bidirectional_lm"])
def test_no_state_has_seen_its_label(case: str) -> None:
    """Another token in the place of a label leaves the state that predicts the label, and is seen
    where it is read."""
    objective, model = made(case)
    batch: Any = collated(objective, packed_rows(64, 1))
    tokens = batch.input_ids if batch.decoder_input_ids is None else batch.decoder_input_ids
    before = states_and_labels(objective, model.backbone, batch)
    for number, (_, states, labels) in enumerate(before):
        step = -1 if number else 1  # the backward states of a BiLSTM predict the token before
        ends = {labels.shape[1] - 1, 0}
        targets = {*(labels[0] != IGNORE_INDEX).nonzero()[:, 0].tolist()} - ends
        assert len(targets) > 3
        for at in sorted(targets)[::4]:
            original = tokens[0, at + step].item()
            tokens[0, at + step] = 7 if original != 7 else 8
            changed = states_and_labels(objective, model.backbone, batch)[number][1]
            tokens[0, at + step] = original
            assert torch.equal(changed[0, at], states[0, at])
            assert not torch.equal(changed[0, at + step], states[0, at + step])


def same(one: Batch, other: Batch) -> bool:
    pairs = [(getattr(one, field.name), getattr(other, field.name)) for field in fields(Batch)]
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


@pytest.mark.parametrize("case", [case for case, (_, settings) in CASES.items() if settings])
def test_for_validation_has_the_same_batches_whatever_the_settings(case: str) -> None:
    rows = packed_rows(64, 3)
    plain, changed = objective_of(case), objective_of(case, **CASES[case][1])
    assert not same(collated(plain, rows), collated(changed, rows)) or case == "mlm nsp"
    assert same(*(collated(each.for_validation(), rows) for each in (plain, changed)))


ROUNDING = {torch.float32: 1e-6, torch.bfloat16: 2**-7}  # rounded twice to 8 bits


@pytest.mark.parametrize("rows_at_once", [ROWS_AT_ONCE, 50])
@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("num_rows", [1, ROWS_AT_ONCE + 1, 3 * ROWS_AT_ONCE])
def test_cross_entropy_has_the_loss_and_gradient_of_torch_in_double_precision(
    num_rows: int, dtype: torch.dtype, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither depends on the number of rows at once; a GPU takes more."""
    monkeypatch.setattr(_cross_entropy, "_rows_at_once", lambda logits: rows_at_once)
    generator = torch.Generator().manual_seed(num_rows)
    values = (5 * torch.randn(num_rows, 50, generator=generator)).bfloat16().double()
    labels = torch.randint(50, (num_rows,), generator=generator)
    labels[::3] = IGNORE_INDEX
    theirs, ours = values.clone().requires_grad_(), values.to(dtype).requires_grad_()
    expected = F.cross_entropy(theirs, labels, ignore_index=IGNORE_INDEX, reduction="sum")
    loss = cross_entropy(ours, labels)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    (gradient,) = torch.autograd.grad(0.3 * loss, ours)
    (right,) = torch.autograd.grad(0.3 * expected, theirs)
    torch.testing.assert_close(gradient.double(), right, rtol=ROUNDING[dtype], atol=1e-6)


# Objectives that predict the tokens beside -------------------------------------------------------


def test_labels_are_the_next_and_the_previous_tokens_of_the_same_document() -> None:
    row = Row(np.array([2, 10, 11, 3, 2, 12, 13]), np.array([1, 1, 1, 1, 2, 2, 3]))
    none = IGNORE_INDEX
    after, before = [10, 11, 3, none, 12, none, none], [none, 2, 10, 11, none, 2, none]
    batch: Any = collated(objective_of("causal"), [row])
    assert batch.labels.tolist() == [after] and batch.num_targets == {"causal": 4}
    both: Any = collated(objective_of("bidirectional_lm"), [row])
    assert both.labels.tolist() == [[after, before]]
    assert both.num_targets == {"forward": 4, "backward": 4}
    assert both.input_ids[0].tolist() == row.tokens.tolist()


def test_prefix_lm_splits_each_document_at_any_of_its_tokens() -> None:
    row, splits, none = row_of(5, 0, 9), set[int](), IGNORE_INDEX
    for seed in range(40):
        batch: Any = collated(objective_of("prefix_lm"), [row], seed=seed)
        for number in (1, 2, 3):
            here = row.document_ids == number
            tokens, seen, labels = row.tokens[here], batch.visible[0][here], batch.labels[0][here]
            split = int(seen.sum())
            assert 1 <= split < len(tokens) and seen[:split].all()
            assert labels.tolist() == [*[none] * (split - 1), *tokens[split:], none]
            splits |= {split} if number == 1 else set()
    assert splits == {*range(1, 7)}
