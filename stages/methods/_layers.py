"""The linear layers of a transformer's blocks, found by the names that ``transformers`` gives."""

import re
from collections.abc import Iterator

from torch import nn

from stages.models._backbone import Backbone

ATTENTION = re.compile(r"att(entio)?n", re.IGNORECASE)  # in the path of each attention's layers
# The last layers of sub-layers, which write into the residual stream: those of Llama, GPT-2,
# ModernBERT, BART, T5, DistilBERT, GPT-NeoX, Phi and BERT.
LAST = re.compile(
    r"(^|\.)(o_proj|down_proj|c_proj|Wo|out_proj|fc2|o|wo|out_lin|lin2|dense_4h_to_h"
    r"|attention\.dense|self_attn\.dense|output\.dense)$"
)


def linear_layers(block: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yields the path in the block and the module of each linear layer (GPT-2's ``Conv1D`` is
    one)."""
    for path, module in block.named_modules():
        if isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D":
            yield path, module


def attention_layers(block: nn.Module) -> list[nn.Module]:
    """Returns the linear layers of the attentions of a block."""
    return [module for path, module in linear_layers(block) if ATTENTION.search(path)]


def last_layers(backbone: Backbone) -> list[nn.Module]:
    """Returns the last linear layer of each sub-layer of all blocks.

    Raises ValueError unless each block has one of a feed-forward network, and one of an attention
    (a decoder that reads an encoder has two), and all have the width of the states.
    """
    layers = list[nn.Module]()
    for block in backbone.blocks:
        last = [(path, module) for path, module in linear_layers(block) if LAST.search(path)]
        of_attention = [module for path, module in last if ATTENTION.search(path)]
        widths = {width_of(module) for _, module in last}
        if len(of_attention) not in (1, 2) or len(last) != len(of_attention) + 1:
            raise ValueError("finds no single attention and feed-forward network in each block")
        if widths != {backbone.d_model}:
            raise ValueError("finds sub-layers of another width than the states")
        layers += [module for _, module in last]
    return layers


def width_of(linear: nn.Module) -> int:
    """Returns the number of outputs of a linear layer."""
    return linear.out_features if isinstance(linear, nn.Linear) else linear.nf  # type: ignore
