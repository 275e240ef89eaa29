"""The cross-entropy over a vocabulary, compared with torch's own in double precision."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stages.objectives import _cross_entropy
from stages.objectives._cross_entropy import ROWS_AT_ONCE, cross_entropy
from stages.text.batch import IGNORE_INDEX

V = 50
ROUNDING = {torch.float32: 1e-6, torch.bfloat16: 2**-7}  # rounded twice to 8 bits


def logits_and_labels(num_rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(num_rows)
    logits = (5 * torch.randn(num_rows, V, generator=generator)).bfloat16().double()
    labels = torch.randint(V, (num_rows,), generator=generator)
    labels[::3] = IGNORE_INDEX
    return logits, labels


class Allocated(TorchDispatchMode):
    """Notes the bytes of every new tensor by its type; views are no new tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = dict[torch.dtype, list[int]]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = (value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor))
        input_storages = {value.untyped_storage()._cdata for value in inputs}
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, Tensor) and value.untyped_storage()._cdata not in input_storages:
                self.bytes.setdefault(value.dtype, []).append(value.untyped_storage().nbytes())
        return result


def test_cross_entropy_on_a_gpu_makes_one_tensor_of_all_logits_which_is_their_gradient() -> None:
    """The meta device, which has only shapes, takes the code path of a GPU: 16 x 1,024 tokens."""
    logits = torch.empty(16, 1024, 32_000, dtype=torch.bfloat16, device="meta", requires_grad=True)
    with Allocated() as allocated:
        cross_entropy(logits, torch.empty(16, 1024, dtype=torch.long, device="meta")).backward()
    largest = {dtype: max(sizes) for dtype, sizes in allocated.bytes.items()}
    assert largest[torch.float32] < 300e6
    assert largest.pop(torch.bfloat16) == 2 * logits.numel()
    assert max(largest.values()) < 300e6
    assert [size for size in allocated.bytes[torch.bfloat16] if size > 300e6] == [
        2 * logits.numel()
    ]


@pytest.mark.parametrize("rows_at_once", [ROWS_AT_ONCE, 50])
@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("num_rows", [1, 2, ROWS_AT_ONCE, ROWS_AT_ONCE + 1, 3 * ROWS_AT_ONCE])
def test_loss_and_gradient_are_those_of_torch(
    num_rows: int, dtype: torch.dtype, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither depends on the number of rows at once; a GPU takes more."""
    monkeypatch.setattr(_cross_entropy, "_rows_at_once", lambda logits: rows_at_once)
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


def test_a_token_that_is_all_but_impossible_has_a_finite_loss() -> None:
    """Its probability is 0 in float32, but the logarithm is finite."""
    logits = torch.zeros(1, V)
    logits[0, 1] = 200
    assert cross_entropy(logits, torch.tensor([0])).item() == pytest.approx(200)
    assert cross_entropy(logits, torch.tensor([1])).item() == 0
