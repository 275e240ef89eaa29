"""The cross-entropy of logits over a vocabulary, the largest tensor of a training step."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from stages.text.batch import IGNORE_INDEX

ROWS_AT_ONCE = 64  # of logits, which stay in a core's cache while they are read several times
BYTES_AT_ONCE = 2**27  # of float32 copies of logits on a GPU, which few rows would leave idle


def cross_entropy(logits: Float[Tensor, "*N V"], labels: Int[Tensor, "*N"]) -> Float[Tensor, ""]:
    """Returns the cross-entropy summed over all labels except IGNORE_INDEX, in float32."""
    logits, labels = logits.flatten(0, -2), labels.flatten()
    if torch.compiler.is_compiling():  # compiled code makes no float32 copy of all logits
        return F.cross_entropy(logits.float(), labels, ignore_index=IGNORE_INDEX, reduction="sum")
    return _CrossEntropy.apply(logits, labels)


def _rows_at_once(logits: Float[Tensor, "N V"]) -> int:
    if logits.device.type == "cpu":
        return ROWS_AT_ONCE
    return max(BYTES_AT_ONCE // (torch.float32.itemsize * logits.shape[1]), 1)


class _CrossEntropy(torch.autograd.Function):
    """``F.cross_entropy`` that computes the gradient together with the loss, a few rows at a time,
    and keeps it in the precision of the logits. All rows at once would pass float32 copies of the
    logits through memory several times. Liger's kernel does the same on a GPU (Hsu et al. 2024)."""

    @staticmethod
    def forward(ctx: Any, logits: Float[Tensor, "N V"], labels: Int[Tensor, " N"]) -> Tensor:
        learns = ctx.needs_input_grad[0]
        gradient = torch.empty_like(logits) if learns else logits
        losses = []
        rows = _rows_at_once(logits)
        parts = (each.split(rows) for each in (logits, labels, gradient))
        for some, right, change in zip(*parts, strict=True):
            counted = right != IGNORE_INDEX
            right = right.where(counted, 0)[:, None]
            some = some.float()
            predicted = some.softmax(dim=1)
            # The probability of the likeliest token is exp(0) / sum, and at least 1 / V.
            log_sum = some.amax(dim=1) - predicted.amax(dim=1).log()
            losses.append((log_sum - some.gather(1, right)[:, 0]).where(counted, 0.0).sum())
            if learns:
                predicted.scatter_add_(1, right, predicted.new_full(right.shape, -1.0))
                # Filling by a mask of rows would take longer than everything else here.
                change.copy_(predicted.mul_(counted[:, None]))
        ctx.save_for_backward(gradient)
        return torch.stack(losses).sum()

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[override] (once_differentiable hides the names)
        ctx: Any, *grad_outputs: Float[Tensor, ""]
    ) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        # In place, since the gradient is large; torch refuses a second backward pass. In float32,
        # since a GPU would round the factor to the precision of the gradient.
        for part in gradient.split(_rows_at_once(gradient)):
            part.copy_(part.float().mul_(grad_outputs[0]))
        return gradient, None
