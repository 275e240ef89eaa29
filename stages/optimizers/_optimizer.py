"""The interface of optimizers."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from stages.core.components import Components
from stages.models._heads import ModelWithHead


class Optimizer(ABC):
    """Updates the weights of a model that require a gradient.

    Its constructor takes the model, the decoupled weight decay and the precision of matrix
    products, then the settings of params.yaml. Biases and norms are not decayed (BERT).
    """

    supports_sharded: ClassVar[bool] = True
    """Whether each process can update its part of a weight (``distributed.strategy: fsdp``)."""

    trains_all_weights: ClassVar[bool] = True
    """Whether every model can be trained; if not, the constructor raises ValueError for some."""

    def __init__(self, model: ModelWithHead, weight_decay: float, dtype: torch.dtype) -> None:
        self.model, self.weight_decay, self.dtype = model, weight_decay, dtype

    @property
    @abstractmethod
    def state(self) -> dict[str, dict[str, Tensor]]:
        """The optimizer's memory of each weight, by the weight's name; checkpoints store it."""

    @abstractmethod
    def step(self, *, lr: float) -> None:
        """Updates each weight that has a gradient, at this learning rate, and drops the
        gradients."""


OPTIMIZERS = Components[Optimizer]("optimizers")


def trained_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    """Returns the weights of a model that require a gradient, by name."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
