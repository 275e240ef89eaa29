"""The update of AdamW; other optimizers use it, too, for some of the weights."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from stages.core.sharded import Sharded, local

BETAS, EPSILON = (0.9, 0.999), 1e-8  # defaults of torch and of the paper


class AdamWUpdate:
    """torch's functional AdamW for ``weights``. Each process updates its part of sharded weights.

    ``torch.optim.AdamW`` computes the same update, but loads torch's compiler, which takes 1.6 s in
    each of the dozens of processes of a study.
    """

    def __init__(self, weights: Mapping[str, nn.Parameter], weight_decay: float) -> None:
        self._groups = [
            ({n: p for n, p in weights.items() if p.dim() >= 2}, weight_decay),
            ({n: p for n, p in weights.items() if p.dim() < 2}, 0.0),
        ]
        self._sharded = any(isinstance(weight, Sharded) for weight in weights.values())
        self.state = {
            name: {
                "step": torch.zeros((), device=weight.device),
                "mean": torch.zeros_like(weight),
                "square": torch.zeros_like(weight),
            }
            for name, weight in weights.items()
        }

    @torch.no_grad()
    def step(self, *, lr: float) -> None:
        for weights, weight_decay in self._groups:
            used = {n: p for n, p in weights.items() if p.grad is not None}
            if not used:
                continue
            states = [self.state[name] for name in used]
            adamw(
                self._local(list(used.values())),
                self._local([p.grad for p in used.values() if p.grad is not None]),
                self._local([state["mean"] for state in states]),
                self._local([state["square"] for state in states]),
                [],
                [state["step"] for state in states],
                fused=True,
                amsgrad=False,
                beta1=BETAS[0],
                beta2=BETAS[1],
                lr=lr,
                weight_decay=weight_decay,
                eps=EPSILON,
                maximize=False,
            )
            for weight in used.values():
                weight.grad = None

    def _local(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [local(tensor) for tensor in tensors] if self._sharded else list(tensors)
