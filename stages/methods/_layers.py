"""The linear layers of a transformer's blocks, found by the names that ``transformers`` gives."""

import re

from torch import nn
from transformers.pytorch_utils import Conv1D

ATTENTION = re.compile(r"att(entio)?n", re.IGNORECASE)  # in the path of each attention's layers


def linear_layers(block: nn.Module) -> dict[str, nn.Module]:
    """Returns the linear layers of a block (GPT-2's ``Conv1D`` is one) by their paths."""
    modules = block.named_modules()
    return {path: module for path, module in modules if isinstance(module, nn.Linear | Conv1D)}
