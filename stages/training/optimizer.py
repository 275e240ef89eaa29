"""AdamW (Loshchilov and Hutter 2019) with linear warm-up and a decay to zero."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from stages.training.ranks import ALONE, Ranks, Sharded, local, put

BETAS, EPSILON = (0.9, 0.999), 1e-8  # torch's and the paper's


class AdamW:
    """torch's functional AdamW over what requires a gradient, its state kept by name.

    ``torch.optim.AdamW`` computes the same, but loads torch's compiler for it: 1.6 s in every
    process, of which a study has dozens. Biases and norms are not decayed (BERT). Of sharded
    weights each process updates its part.
    """

    def __init__(self, model: nn.Module, *, weight_decay: float) -> None:
        trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self._groups = [
            ({n: p for n, p in trained.items() if p.dim() >= 2}, weight_decay),
            ({n: p for n, p in trained.items() if p.dim() < 2}, 0.0),
        ]
        self._sharded = any(isinstance(weight, Sharded) for weight in trained.values())
        self.state = {
            name: {
                "step": torch.zeros((), device=weight.device),
                "mean": torch.zeros_like(weight),
                "square": torch.zeros_like(weight),
            }
            for name, weight in trained.items()
        }

    @torch.no_grad()
    def step(self, *, lr: float) -> None:
        """One update of each weight that has a gradient; the gradients are dropped."""
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

    def load(self, state: dict[str, dict[str, Tensor]], ranks: Ranks = ALONE) -> None:
        """Go on from a state of the same model, whole on each rank."""
        assert state.keys() == self.state.keys()
        for name, values in state.items():
            for key, value in values.items():
                put(value, self.state[name][key], ranks)


def lr_factor(step: int, num_steps: int, *, warmup_fraction: float, decay: str) -> float:
    """What the learning rate is multiplied by in step 0, 1, ..., num_steps - 1.

    It rises linearly to 1, then falls to 0 at num_steps, or stays.
    """
    warmup = round(warmup_fraction * num_steps)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    remaining = (num_steps - step) / max(num_steps - warmup, 1)
    match decay:
        case "linear":
            return remaining
        case "cosine":
            return 0.5 * (1 - math.cos(math.pi * remaining))
        case _:
            return 1.0
