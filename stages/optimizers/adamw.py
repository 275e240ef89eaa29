"""AdamW (Loshchilov and Hutter 2019)."""

import torch

from stages.models._heads import ModelWithHead
from stages.optimizers._optimizer import TorchAdamW, trained_weights


class AdamW(TorchAdamW):
    """AdamW for all weights."""

    def __init__(self, model: ModelWithHead, weight_decay: float, dtype: torch.dtype) -> None:
        super().__init__(trained_weights(model), weight_decay)
