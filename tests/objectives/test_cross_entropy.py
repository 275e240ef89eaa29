"""The cross-entropy over a vocabulary, compared with torch's own in double precision."""

import pytest
import torch
import torch.nn.functional as F

from stages.objectives import _cross_entropy
from stages.objectives._cross_entropy import ROWS_AT_ONCE, cross_entropy
from stages.text.batch import IGNORE_INDEX

V = 50
ROUNDING = {torch.float32: 1e-6, torch.bfloat16: 2**-7}  # rounded twice to 8 bits


@pytest.mark.parametrize("rows_at_once", [ROWS_AT_ONCE, 50])
@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("num_rows", [1, ROWS_AT_ONCE, ROWS_AT_ONCE + 1, 3 * ROWS_AT_ONCE])
def test_loss_and_gradient_are_those_of_torch(
    num_rows: int, dtype: torch.dtype, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither depends on the number of rows at once; a GPU takes more."""
    monkeypatch.setattr(_cross_entropy, "_rows_at_once", lambda logits: rows_at_once)
    generator = torch.Generator().manual_seed(num_rows)
    values = (5 * torch.randn(num_rows, V, generator=generator)).bfloat16().double()
    labels = torch.randint(V, (num_rows,), generator=generator)
    labels[::3] = IGNORE_INDEX
    theirs, ours = values.clone().requires_grad_(), values.to(dtype).requires_grad_()
    expected = F.cross_entropy(theirs, labels, ignore_index=IGNORE_INDEX, reduction="sum")
    loss = cross_entropy(ours, labels)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    (gradient,) = torch.autograd.grad(0.3 * loss, ours)
    (right,) = torch.autograd.grad(0.3 * expected, theirs)
    torch.testing.assert_close(gradient.double(), right, rtol=ROUNDING[dtype], atol=1e-6)
