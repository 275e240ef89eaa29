"""Adapters: small bottleneck layers inside a frozen backbone (Houlsby et al. 2019)."""

import re

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from stages.methods._additions import ATTENTION, AdditionMethod, linear_layers
from stages.methods._method import freeze_backbone
from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead

STD = 0.01  # the paper's, section 3.6
# The last layers of sub-layers, which write into the residual stream: those of Llama, GPT-2,
# ModernBERT, BART, T5, DistilBERT, GPT-NeoX (Pythia), Phi and BERT.
LAST = re.compile(
    r"(^|\.)(o_proj|down_proj|c_proj|Wo|out_proj|fc2|o|wo|out_lin|lin2|dense_4h_to_h"
    r"|attention\.dense|self_attn\.dense|output\.dense)$"
)


class Adapter(AdditionMethod):
    """Computes h + W_up gelu(W_down h) after the last linear layer of each sub-layer, before the
    residual is added; ``bottleneck`` is the width of W_down h (section 2.1).

    With ``train_norms`` the scales and biases of norms also train, as in the paper. Unlike in the
    paper, W_up is zero at first, so that the model equals the pretrained one, and the adapter comes
    before the sub-layer's dropout.
    """

    def __init__(self, *, bottleneck: int = 64, train_norms: bool = True) -> None:
        if bottleneck < 1:
            raise ValueError(f"bottleneck must be at least 1, not {bottleneck}")
        self.bottleneck, self.train_norms = bottleneck, train_norms

    def incompatibility(self, backbone: Backbone) -> str | None:
        for block in backbone.blocks:
            last = _last_layers(block)
            widths = {getattr(x, "nf", getattr(x, "out_features", 0)) for x in last.values()}
            # A decoder that reads an encoder has two attentions.
            num_attentions = sum(bool(ATTENTION.search(path)) for path in last)
            is_usual = num_attentions in (1, 2) and len(last) == num_attentions + 1
            if not is_usual or widths != {backbone.d_model}:
                return "finds no attention and feed-forward network of the model's width in a block"
        return super().incompatibility(backbone)

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        freeze_backbone(model)
        backbone = model.backbone
        for module in backbone.modules():
            weight = getattr(module, "weight", None)
            if self.train_norms and weight is not None and weight.dim() == 1:  # of a norm
                module.requires_grad_(True)
        for block in backbone.blocks:
            for layer in _last_layers(block).values():
                layer.adapter = _Bottleneck(backbone.d_model, self.bottleneck, generator=generator)
                layer.register_forward_hook(lambda layer, _, output: layer.adapter(output))


def _last_layers(block: nn.Module) -> dict[str, nn.Module]:
    """Returns the last linear layer of each sub-layer of a block by its path."""
    return {path: layer for path, layer in linear_layers(block).items() if LAST.search(path)}


class _Bottleneck(nn.Module):
    def __init__(self, d_model: int, width: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(d_model, width), nn.Linear(width, d_model)
        for weight in self.parameters():
            nn.init.zeros_(weight)
        nn.init.normal_(self.down.weight, std=STD, generator=generator)

    def forward(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        return states + self.up(F.gelu(self.down(states)))
