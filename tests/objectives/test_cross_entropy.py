"""The cross-entropy over a vocabulary, beside torch's own in double precision."""

import math

import pytest
import torch
import torch.nn.functional as F

from stages.objectives._cross_entropy import ROWS_AT_ONCE, cross_entropy
from stages.text.batch import IGNORE_INDEX

V = 50
ROUNDING = {torch.float32: 1e-6, torch.bfloat16: 2**-7}  # rounded twice to 8 digits


def logits_and_labels(num_rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(num_rows)
    logits = (5 * torch.randn(num_rows, V, generator=generator)).bfloat16().double()
    labels = torch.randint(V, (num_rows,), generator=generator)
    labels[::3] = IGNORE_INDEX
    return logits, labels


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("num_rows", [1, 2, ROWS_AT_ONCE, ROWS_AT_ONCE + 1, 3 * ROWS_AT_ONCE])
def test_loss_and_gradient_are_those_of_torch(num_rows: int, dtype: torch.dtype) -> None:
    values, labels = logits_and_labels(num_rows)
    gradients, losses = [], []
    for loss_of, logits in (
        (lambda x, y: F.cross_entropy(x, y, ignore_index=IGNORE_INDEX, reduction="sum"), values),
        (cross_entropy, values.to(dtype)),
    ):
        logits = logits.clone().requires_grad_()
        loss = loss_of(logits, labels)
        losses.append(loss.item())
        gradients.append(torch.autograd.grad(0.3 * loss, logits)[0].double())
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=ROUNDING[dtype], atol=1e-6)


def test_rows_of_a_batch_and_what_is_not_counted() -> None:
    values, labels = logits_and_labels(12)
    together = cross_entropy(values.float().unflatten(0, (3, 4)), labels.unflatten(0, (3, 4)))
    alone = sum(cross_entropy(values.float()[[i]], labels[[i]]) for i in range(12))
    torch.testing.assert_close(together, alone)
    assert cross_entropy(values.float(), torch.full_like(labels, IGNORE_INDEX)) == 0


def test_there_may_be_no_label() -> None:
    """As in a batch where nothing is masked."""
    logits = torch.zeros(0, V, requires_grad=True)
    loss = cross_entropy(logits, torch.zeros(0, dtype=torch.long))
    assert loss.item() == 0
    assert torch.autograd.grad(loss, logits)[0].shape == (0, V)


def test_a_token_that_is_all_but_impossible_has_a_finite_loss() -> None:
    """Its probability is 0 in float32, its logarithm is not infinite."""
    logits = torch.zeros(1, V)
    logits[0, 1] = 200
    assert cross_entropy(logits, torch.tensor([0])).item() == pytest.approx(200)
    assert cross_entropy(logits, torch.tensor([1])).item() == 0


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_of_logits_that_are_no_numbers_is_none_either(value: float) -> None:
    """So that training says that it diverged."""
    logits = torch.zeros(2, V)
    logits[1, 3] = value
    assert not math.isfinite(cross_entropy(logits, torch.tensor([0, 0])).item())
