"""What methods share that leave a backbone as it is and train something small beside it."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from stages.models._backbone import Backbone, TransformerBackbone
from stages.models._heads import ModelWithHead
from stages.text.batch import Batch

TRANSFORMERS = ("encoder", "decoder", "encoder_decoder")
ATTENTION = re.compile(r"att(entio)?n", re.IGNORECASE)


def freeze_backbone(model: ModelWithHead) -> None:
    """Nothing trains but the head and, where a backbone has one, its mix of layers: a task learns
    both (Peters et al. 2018, section 3.3)."""
    model.requires_grad_(False)
    model.head.requires_grad_(True)
    if model.backbone.mix is not None:
        model.backbone.mix.requires_grad_(True)


@dataclass(frozen=True)
class LinearLayer:
    """A linear layer of our own, of torch's, or GPT-2's Conv1D, and its widths."""

    module: nn.Module
    inputs: int
    outputs: int


@dataclass(frozen=True)
class SubLayer:
    """The linear layers of an attention or of a feed-forward sub-layer, from its input on; the last
    one writes to the residual stream."""

    is_attention: bool
    linears: list[LinearLayer]


def sub_layers(block: nn.Module) -> list[SubLayer]:
    """Those of a block of ours or of transformers, where attention is told by its name alone."""
    found: dict[str, list[LinearLayer]] = {}
    for name, module in block.named_modules():
        # Not imported: it would load transformers where only our own models are trained.
        if type(module).__name__ == "Conv1D":
            inputs, outputs = module.get_parameter("weight").shape
        elif isinstance(module, nn.Linear):
            inputs, outputs = module.in_features, module.out_features
        else:
            continue
        found.setdefault(_attention(name), []).append(LinearLayer(module, inputs, outputs))
    return [SubLayer(bool(name), linears) for name, linears in found.items()]


def _attention(name: str) -> str:
    """The path up to what is called attention; empty if nothing is."""
    parts = name.split(".")
    for i, part in enumerate(parts):
        if ATTENTION.search(part):
            return ".".join(parts[: i + 1])
    return ""


class Addition(nn.Module):
    """A small module that stands in a backbone, its weights drawn on construction."""

    flops_per_token: int


def count_additions(backbone: Backbone) -> None:
    """Have ``backbone.flops`` count the additions that stand in it, too.

    Those of a decoder, if there is one, are counted for the tokens it decodes. A backbone that is
    one writes behind what it reads, in the same row.
    """
    if not isinstance(backbone, TransformerBackbone):
        return  # a public checkpoint counts what it computes
    of_input, of_decoder = 0, 0
    for name, module in backbone.named_modules():
        if isinstance(module, Addition):
            decodes = name.startswith("decoder.")
            of_input += 0 if decodes else module.flops_per_token
            of_decoder += module.flops_per_token if decodes else 0

    def added(batch: Batch) -> int:
        rows, read = batch.input_ids.shape
        written = 0 if batch.decoder_input_ids is None else batch.decoder_input_ids.shape[1]
        if written and backbone.architecture == "decoder":
            read += written - 1
        return rows * (of_input * read + of_decoder * written)

    change_flops(backbone, lambda flops, batch: flops(batch) + added(batch))


def change_flops(
    backbone: Backbone, changed: Callable[[Callable[[Batch], int], Batch], int]
) -> None:
    """Have ``backbone.flops(batch)`` be ``changed(what it was, batch)``."""
    flops = backbone.flops
    backbone.flops = lambda batch: changed(flops, batch)


def drawn(*shape: int, std: float, generator: torch.Generator) -> nn.Parameter:
    """A weight from a normal distribution."""
    return nn.Parameter(std * torch.randn(*shape, generator=generator))
