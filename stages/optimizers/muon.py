"""Muon for the hidden matrices, AdamW for all other weights (Jordan et al. 2024).

The scale of an update is that of Liu et al. 2025 (Muon is scalable for LLM training, section 2.2).
"""

from collections import defaultdict

import torch
from jaxtyping import Float
from torch import Tensor

from stages.models._heads import ModelWithHead
from stages.optimizers._adamw_update import AdamWUpdate
from stages.optimizers._optimizer import Optimizer, trained_weights

MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # coefficients of X, of X X^T X and of (X X^T)^2 X
NUM_ITERATIONS = 5
EPSILON = 1e-7


class Muon(Optimizer):
    """Replaces the momentum of a hidden matrix by the nearest matrix whose singular values are
    about equal, so that rare directions are learnt as fast as frequent ones.

    The hidden matrices are those of the linear layers in the model's blocks. Embeddings, output
    layers, heads, norms and biases get AdamW's update at the same learning rate. The root mean
    square of an update is ``update_rms`` times the learning rate for Muon, and about 0.2 times the
    learning rate for AdamW.

    ``torch.optim.Muon`` computes the same update, but matrix by matrix, which takes a third of a
    step of a small model on a CPU. Here matrices of one shape are multiplied in one batch.

    Raises ValueError if no hidden matrix requires a gradient.
    """

    supports_sharded = False  # an update needs the whole matrix
    trains_all_weights = False

    def __init__(
        self,
        model: ModelWithHead,
        weight_decay: float,
        dtype: torch.dtype,
        *,
        update_rms: float = 0.2,
    ) -> None:
        super().__init__(model, weight_decay, dtype)
        if update_rms <= 0:
            raise ValueError(f"update_rms must be greater than 0, not {update_rms}")
        self.update_rms = update_rms
        weights = trained_weights(model)
        parts = model.backbone.hidden_matrices()
        self._hidden = {n: (p, parts[p]) for n, p in weights.items() if p in parts}
        if not self._hidden:
            raise ValueError(
                "muon is for the matrices of a model's blocks, and none of them is trained; use "
                "adamw"
            )
        others = {name: weight for name, weight in weights.items() if name not in self._hidden}
        self._others = AdamWUpdate(others, weight_decay)
        momenta = {
            name: {"momentum": torch.zeros_like(weight)}
            for name, (weight, _) in self._hidden.items()
        }
        self._state = self._others.state | momenta

    @property
    def state(self) -> dict[str, dict[str, Tensor]]:
        return self._state

    @torch.no_grad()
    def step(self, *, lr: float) -> None:
        self._others.step(lr=lr)
        by_shape: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for name, (weight, num_parts) in self._hidden.items():
            if weight.grad is None:
                continue
            momentum = self._state[name]["momentum"].lerp_(weight.grad, 1 - MOMENTUM)
            update = weight.grad.lerp_(momentum, MOMENTUM)  # Nesterov's
            weight.mul_(1 - lr * self.weight_decay)
            for part, of_part in zip(weight.chunk(num_parts), update.chunk(num_parts), strict=True):
                wide = part.shape[0] <= part.shape[1]
                turned = (part, of_part) if wide else (part.T, of_part.T)
                by_shape[turned[0].shape[0], turned[0].shape[1]].append(turned)
            weight.grad = None
        for (_, columns), matrices in by_shape.items():
            updates = orthogonalised(torch.stack([update.to(self.dtype) for _, update in matrices]))
            scale = lr * self.update_rms * columns**0.5
            for (weight, _), update in zip(matrices, updates.unbind(), strict=True):
                weight.sub_(update, alpha=scale)


def orthogonalised(matrices: Float[Tensor, "N R C"]) -> Float[Tensor, "N R C"]:
    """Returns each matrix with all singular values near 1, between 0.7 and 1.2, by the iteration of
    Newton and Schulz; R is at most C."""
    a, b, c = NEWTON_SCHULZ
    x = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp(min=EPSILON)
    for _ in range(NUM_ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x
