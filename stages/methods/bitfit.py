"""BitFit: the biases and the head train, nothing else (Ben Zaken et al. 2021)."""

import torch

from stages.methods._additions import freeze_backbone
from stages.methods._method import Method
from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead


class BitFit(Method):
    """All biases of the backbone: of linear layers, of norms and of LSTMs' gates, but not the
    vocabulary's."""

    def misfit(self, backbone: Backbone) -> str | None:
        if any(_is_bias(name) for name, _ in backbone.named_parameters()):
            return None
        return "trains biases and this model has none (model.bias: true gives our own models some)"

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        freeze_backbone(model)
        for name, weight in model.backbone.named_parameters():
            if _is_bias(name):
                weight.requires_grad_(True)


def _is_bias(name: str) -> bool:
    """``query.bias``, and ``bias_ih_l0`` of torch's LSTMs."""
    return name.rpartition(".")[2].startswith("bias")
