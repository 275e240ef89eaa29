"""Methods that add modules to a frozen transformer, and where they add them."""

import re
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from stages.methods._method import TrainedMethod
from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead

ATTENTION = re.compile(r"att(entio)?n", re.IGNORECASE)  # in the path of each attention's layers


class AdditionMethod(TrainedMethod):
    """Adds small modules to a frozen transformer and trains them."""

    def incompatibility(self, backbone: Backbone) -> str | None:
        return "supports transformers only" if backbone.architecture == "bilstm" else None

    def merge(self, model: ModelWithHead) -> None:
        raise ValueError("it adds modules that no class of transformers has")


def linear_layers(block: nn.Module) -> dict[str, nn.Module]:
    """Returns the linear layers of a block (GPT-2's ``Conv1D`` is one) by their paths."""
    modules = block.named_modules()
    return {path: module for path, module in modules if isinstance(module, nn.Linear | Conv1D)}


def vectors_for_rows(reader: Any, ids: Int[Tensor, "B T"], length: int) -> Float[Tensor, "B P _"]:
    """Returns the ``length`` vectors that ``reader.learnt`` (a module of peft) computes, once for
    each row of the input."""
    return reader.learnt(torch.arange(length, device=ids.device).expand(len(ids), -1))
