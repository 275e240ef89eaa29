"""The interface of optimizers, and AdamW for some of a model's weights."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from stages.core.components import Components


class Optimizer(ABC):
    """Updates the weights of a model that require a gradient.

    Its constructor takes the model, the decoupled weight decay and the precision of matrix
    products, then the settings of params.yaml. Biases and norms are not decayed (BERT).
    """

    supports_sharded: ClassVar[bool] = True
    """Whether each process can update its part of a weight (``distributed.strategy: fsdp``)."""

    state: dict[str, dict[str, Tensor]]
    """The optimizer's memory of each weight, by the weight's name; checkpoints store it. It exists
    before the first step, so that a saved one can be put into it."""

    @abstractmethod
    def step(self, *, lr: float) -> None:
        """Updates each weight that has a gradient, and drops the gradients."""


OPTIMIZERS = Components[Optimizer]("optimizers")


def trained_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    """Returns the weights of a model that require a gradient, by name."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


class TorchAdamW(Optimizer):
    """``torch.optim.AdamW`` for named weights."""

    def __init__(self, weights: Mapping[str, nn.Parameter], weight_decay: float) -> None:
        vectors = [weight for weight in weights.values() if weight.dim() < 2]
        matrices = [weight for weight in weights.values() if weight.dim() >= 2]
        groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
        self._adamw = torch.optim.AdamW(groups, weight_decay=weight_decay, fused=True)
        self.state = {}
        for name, weight in weights.items():
            moments = {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
            self.state[name] = {"step": torch.zeros((), device=weight.device), **moments}
            self._adamw.state[weight] = self.state[name]

    def step(self, *, lr: float) -> None:
        for group in self._adamw.param_groups:
            group["lr"] = lr
        self._adamw.step()
        self._adamw.zero_grad()
