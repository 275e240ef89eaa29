"""AdamW (Loshchilov and Hutter 2019)."""

import torch
from torch import Tensor

from stages.models._heads import ModelWithHead
from stages.optimizers._adamw_update import AdamWUpdate
from stages.optimizers._optimizer import Optimizer, trained_weights


class AdamW(Optimizer):
    """AdamW for all weights."""

    def __init__(self, model: ModelWithHead, weight_decay: float, dtype: torch.dtype) -> None:
        super().__init__(model, weight_decay, dtype)
        self._update = AdamWUpdate(trained_weights(model), weight_decay)

    @property
    def state(self) -> dict[str, dict[str, Tensor]]:
        return self._update.state

    def step(self, *, lr: float) -> None:
        self._update.step(lr=lr)
