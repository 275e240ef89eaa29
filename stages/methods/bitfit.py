"""BitFit: the biases and the head train, nothing else (Ben Zaken et al. 2021)."""

import torch
from torch import nn

from stages.methods._method import TrainedMethod, freeze_backbone
from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead


class BitFit(TrainedMethod):
    """Trains all biases of the backbone (in linear layers, norms and LSTM gates)."""

    def incompatibility(self, backbone: Backbone) -> str | None:
        return None if _biases(backbone) else "trains biases only, and this model has none"

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        freeze_backbone(model)
        for bias in _biases(model.backbone):
            bias.requires_grad_(True)


def _biases(backbone: Backbone) -> list[nn.Parameter]:
    """Returns the weights with the name of a bias, such as ``query.bias``, or ``bias_ih_l0`` in
    torch's LSTMs."""
    named = backbone.named_parameters()
    return [weight for name, weight in named if name.rpartition(".")[2].startswith("bias")]
