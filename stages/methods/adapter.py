"""Adapters: small bottleneck layers inside a frozen backbone (Houlsby et al. 2019)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from stages.methods._layers import last_layers, width_of
from stages.methods._method import AdditionMethod, freeze_backbone
from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead

STD = 0.01  # the paper's, section 3.6


class Adapter(AdditionMethod):
    """Computes h + W_up gelu(W_down h) after the last linear layer of each sub-layer, before the
    residual is added; ``bottleneck`` is the width of W_down h (section 2.1).

    With ``train_norms`` the scales and biases of norms also train, as in the paper. Unlike in the
    paper, W_up is zero at first, so that the model equals the pretrained one, and the adapter comes
    before the sub-layer's dropout.

    Raises ValueError for a bottleneck below 1.
    """

    def __init__(self, *, bottleneck: int = 64, train_norms: bool = True) -> None:
        if bottleneck < 1:
            raise ValueError(f"bottleneck must be at least 1, not {bottleneck}")
        self.bottleneck, self.train_norms = bottleneck, train_norms

    def incompatibility(self, backbone: Backbone) -> str | None:
        if reason := super().incompatibility(backbone):
            return reason
        try:
            last_layers(backbone)
        except ValueError as error:
            return f"{error} of this model; full and bitfit need none"
        return None

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        freeze_backbone(model)
        for module in model.backbone.modules():
            weight = getattr(module, "weight", None)
            if self.train_norms and weight is not None and weight.dim() == 1:  # of a norm
                module.requires_grad_(True)
        for layer in last_layers(model.backbone):
            layer.adapter = _Bottleneck(width_of(layer), self.bottleneck, generator=generator)
            layer.register_forward_hook(_adapt)


class _Bottleneck(nn.Module):
    def __init__(self, d_model: int, width: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(d_model, width), nn.Linear(width, d_model)
        for weight in self.parameters():
            nn.init.zeros_(weight)
        nn.init.normal_(self.down.weight, std=STD, generator=generator)

    def forward(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        return states + self.up(F.gelu(self.down(states)))


def _adapt(linear: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return linear.get_submodule("adapter")(output)
