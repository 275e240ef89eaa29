"""Shared code of the methods that freeze the backbone and train small modules inside it."""

import re
from dataclasses import dataclass

import torch
from torch import nn

from stages.methods._method import TrainedMethod
from stages.models._backbone import Backbone, is_conv1d
from stages.models._heads import ModelWithHead

ATTENTION = re.compile(r"att(entio)?n", re.IGNORECASE)


class AdditionMethod(TrainedMethod):
    """Adds small modules to a frozen transformer and trains them."""

    def incompatibility(self, backbone: Backbone) -> str | None:
        if backbone.is_transformer:
            return super().incompatibility(backbone)
        return f"supports transformers only, not {backbone.architecture}"


def freeze_backbone(model: ModelWithHead) -> None:
    """Freezes all weights but those of the head and of the backbone's mix of layers, if it has one:
    each task learns its own mix (Peters et al. 2018, section 3.3)."""
    model.requires_grad_(False)
    model.head.requires_grad_(True)
    if model.backbone.mix is not None:
        model.backbone.mix.requires_grad_(True)


@dataclass(frozen=True)
class LinearLayer:
    """A linear layer (``nn.Linear`` or GPT-2's ``Conv1D``) and its input and output widths."""

    module: nn.Module
    inputs: int
    outputs: int


@dataclass(frozen=True)
class SubLayer:
    """The linear layers of an attention or feed-forward sub-layer, in the order of computation; the
    last one writes into the residual stream."""

    is_attention: bool
    linears: list[LinearLayer]


def sub_layers(block: nn.Module) -> list[SubLayer]:
    """Returns the sub-layers of a block of this project or of the package transformers. Attention
    is recognised by the name of its module."""
    linears_of: dict[str, list[LinearLayer]] = {}
    for name, module in block.named_modules():
        if is_conv1d(module):
            inputs, outputs = module.get_parameter("weight").shape
        elif isinstance(module, nn.Linear):
            inputs, outputs = module.in_features, module.out_features
        else:
            continue
        linears_of.setdefault(_attention(name), []).append(LinearLayer(module, inputs, outputs))
    return [SubLayer(bool(name), linears) for name, linears in linears_of.items()]


def _attention(name: str) -> str:
    """Returns the path of the attention module that contains the module ``name``, or ''."""
    parts = name.split(".")
    for i, part in enumerate(parts):
        if ATTENTION.search(part):
            return ".".join(parts[: i + 1])
    return ""


def drawn(*shape: int, std: float, generator: torch.Generator) -> nn.Parameter:
    """Returns a weight drawn from a normal distribution with mean 0."""
    return nn.Parameter(std * torch.randn(*shape, generator=generator))
