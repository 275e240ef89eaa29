"""BitFit: the biases and the head train, nothing else (Ben Zaken et al. 2021)."""

import torch

from stages.methods._method import TrainedMethod, freeze_backbone
from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead


class BitFit(TrainedMethod):
    """Trains all biases of the backbone (in linear layers, norms and LSTM gates)."""

    def incompatibility(self, backbone: Backbone) -> str | None:
        if any(_is_bias(name) for name, _ in backbone.named_parameters()):
            return None
        return "trains biases only, and this model has none"

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        freeze_backbone(model)
        for name, weight in model.backbone.named_parameters():
            if _is_bias(name):
                weight.requires_grad_(True)


def _is_bias(name: str) -> bool:
    """Whether a weight has the name of a bias, such as ``query.bias``, or ``bias_ih_l0`` in torch's
    LSTMs."""
    return name.rpartition(".")[2].startswith("bias")
