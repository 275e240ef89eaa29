"""Attention within documents as on a GPU, computed by a reference kernel on the CPU."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import tests.flash_reference  # noqa: F401 (registers its kernels)
from stages.models import _attention
from stages.models._attention import Documents, attend, attend_within_documents, attention_mask
from stages.text.batch import Batch, document_starts, starts_of
from stages.training.flops import Counter
from tests.small import small_model
from tests.training.trained_by_ranks import built, cases

IDS = torch.tensor([[1, 1, 1, 2, 3, 3, 0, 0], [1, 2, 2, 2, 2, 2, 2, 3], [0] * 8, [1] * 8])


def test_document_starts_are_those_of_all_rows_in_one_sequence() -> None:
    starts = document_starts(IDS)
    assert starts is not None and starts.dtype == torch.int32
    assert starts.tolist() == [0, 3, 4, 6, 8, 9, 15, 16, 24, 32, 32, 32, 32, 32, 32, 32]


def test_document_starts_end_with_the_number_of_tokens() -> None:
    """The number is added even if the number of documents is a power of two."""
    starts = document_starts(torch.tensor([[1, 1], [1, 2], [1, 1]]))
    assert starts is not None and starts.tolist() == [0, 2, 3, 4, 6, 6, 6, 6]


def test_document_starts_are_unknown_where_a_document_is_in_two_places() -> None:
    assert document_starts(torch.tensor([[1, 1, 0, 1]])) is None
    assert document_starts(torch.tensor([[0, 1, 1, 0], [1, 1, 1, 1]])) is None


@pytest.mark.parametrize("causal", [False, True])
def test_attend_within_documents_is_attention_with_their_mask(causal: bool) -> None:
    starts = document_starts(IDS)
    assert starts is not None
    mask = attention_mask(IDS, IDS, causal=causal)
    assert_alike(Documents(starts, longest=8, causal=causal), mask)


def assert_alike(documents: Documents, mask: Tensor) -> None:
    """Compares the values and the gradients of attention in double precision."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(4, 3, 8, 16, generator=generator, dtype=torch.float64, requires_grad=True)
        for _ in range(3)
    )
    weights = torch.randn(4, 3, 8, 16, generator=generator, dtype=torch.float64)
    results = [
        [mixed, *torch.autograd.grad((mixed * weights).sum(), (q, k, v))]
        for mixed in (
            attend_within_documents(q, k, v, documents),
            attend(q, k, v, mask),
        )
    ]
    for by_documents, by_mask in zip(*results, strict=True):
        torch.testing.assert_close(by_documents, by_mask)


PREFIXES = torch.tensor(
    [
        [True, True, False, True, False, False, True, True],  # a whole document and padding, too
        [False, True, True, True, False, False, False, False],
        [False] * 8,
        [True] * 8,
    ]
)


def test_attend_within_documents_is_attention_with_the_mask_of_their_prefixes() -> None:
    batch = Batch(input_ids=IDS, document_ids=IDS, visible=PREFIXES, num_targets={})
    starts = starts_of(batch)
    documents = Documents(starts["document_starts"], 8, True, PREFIXES, starts["prefix_starts"])
    mask = attention_mask(IDS, IDS, causal=True, visible=PREFIXES)
    assert_alike(documents, mask)
    assert not torch.equal(mask, attention_mask(IDS, IDS, causal=True))


def test_starts_of_a_prefix_that_does_not_begin_its_document_are_unknown() -> None:
    visible = torch.tensor([[False, True, False]])
    ids = torch.ones(1, 3, dtype=torch.long)
    batch = Batch(input_ids=ids, document_ids=ids, visible=visible, num_targets={})
    assert starts_of(batch).keys() == {"document_starts"}


def losses_and_gradients(name: str, architecture: str, *, on_gpu: bool) -> tuple[Tensor, Tensor]:
    """Returns the terms of an objective's loss in bfloat16 and all gradients, with attention as on
    a GPU or as on a CPU."""
    objective, model, data = built(name, architecture)
    [batch, *_] = data.micro_batches(0)
    if on_gpu:
        batch = replace(batch, **starts_of(batch))
    model.eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        terms = model(objective.loss, batch)
    losses = torch.stack([loss_sum for _, loss_sum in terms.values()])
    losses.sum().backward()
    gradients = [each.grad.flatten() for each in model.parameters() if each.grad is not None]
    return losses, torch.cat(gradients)


CASES = [case for case in cases() if case[1] != "bilstm"]


@pytest.mark.parametrize(("name", "architecture"), CASES)
def test_a_step_of_an_objective_is_equal_with_and_without_masks(
    name: str, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attended = list[Documents]()

    def noted(q: Tensor, k: Tensor, v: Tensor, documents: Documents) -> Tensor:
        attended.append(documents)
        return attend_within_documents(q, k, v, documents)

    monkeypatch.setattr(_attention, "attend_within_documents", noted)
    losses, gradients = losses_and_gradients(name, architecture, on_gpu=True)
    assert attended
    right_losses, right_gradients = losses_and_gradients(name, architecture, on_gpu=False)
    torch.testing.assert_close(losses, right_losses, rtol=5e-3, atol=0)
    assert (gradients - right_gradients).norm() < 0.03 * right_gradients.norm()


def test_operations_within_documents_count_as_with_a_mask() -> None:
    """Numbers in a study do not depend on the device."""
    model = small_model("decoder")
    rows = torch.randint(model.vocab_size, IDS.shape, generator=torch.Generator().manual_seed(0))
    batch = Batch(input_ids=rows, document_ids=IDS, num_targets={})
    counts = list[int]()
    for starts in (None, document_starts(IDS)):
        with Counter() as counter, torch.autocast("cpu", dtype=torch.bfloat16):
            states: Any = model(replace(batch, document_starts=starts))
            states.sum().backward()
        counts.append(counter.total)
    assert counts[0] == counts[1]
