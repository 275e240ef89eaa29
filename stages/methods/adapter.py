"""Adapters: small bottleneck layers inside a frozen backbone (Houlsby et al. 2019)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from stages.methods._additions import AdditionMethod, drawn, freeze_backbone, sub_layers
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
        for block in backbone.blocks:
            widths = [sub_layer.linears[-1].outputs for sub_layer in sub_layers(block)]
            if len(widths) < 2 or set(widths) != {backbone.d_model}:
                return "finds no sub-layers in the blocks of this model; full and bitfit need none"
        return None

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        freeze_backbone(model)
        if self.train_norms:
            for module in model.backbone.modules():
                if "Norm" in type(module).__name__:  # transformers has many classes of norms
                    for weight in module.parameters(recurse=False):
                        weight.requires_grad_(True)
        for block in model.backbone.blocks:
            for sub_layer in sub_layers(block):
                last = sub_layer.linears[-1]
                last.module.adapter = _Bottleneck(
                    last.outputs, self.bottleneck, generator=generator
                )
                last.module.register_forward_hook(_adapt)


class _Bottleneck(nn.Module):
    def __init__(self, d_model: int, width: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.down = drawn(width, d_model, std=STD, generator=generator)
        self.down_bias = nn.Parameter(torch.zeros(width))
        self.up = nn.Parameter(torch.zeros(d_model, width))
        self.up_bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        inner = F.gelu(F.linear(states, self.down, self.down_bias))
        return states + F.linear(inner, self.up, self.up_bias)


def _adapt(linear: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return linear.get_submodule("adapter")(output)
