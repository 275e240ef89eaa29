"""Gradual unfreezing: from the head down, one layer more each epoch (Howard and Ruder 2018, section
3.3)."""

from collections.abc import Iterable

import torch
from torch import nn

from stages.methods._method import Method
from stages.models._heads import ModelWithHead


class GradualUnfreezing(Method):
    """In the first epoch the head trains alone (and an ELMo's mix of layers), in each epoch after
    it ``blocks_per_epoch`` more blocks from the top; what is in no block (embeddings, a last norm)
    begins with the lowest one. A task without a head begins with the first blocks. Where epochs are
    fewer, the lowest blocks stay as they were pretrained.

    The learning rate is one for all, unlike the paper's, which falls from layer to layer.

    Raises ValueError for less than one block in an epoch.
    """

    def __init__(self, *, blocks_per_epoch: int = 1) -> None:
        if blocks_per_epoch < 1:
            raise ValueError(f"blocks_per_epoch must be at least 1, not {blocks_per_epoch}")
        self.blocks_per_epoch = blocks_per_epoch

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        model.requires_grad_(True)

    def frozen(self, model: ModelWithHead, epoch: int) -> Iterable[nn.Parameter]:
        blocks: list[nn.Module] = model.backbone.blocks
        begun = epoch if any(True for _ in model.head.parameters()) else epoch + 1
        waiting = blocks[: max(len(blocks) - begun * self.blocks_per_epoch, 0)]
        if not waiting:
            return []
        training = [model.head, *blocks[len(waiting) :]]
        if model.backbone.mix is not None:
            training.append(model.backbone.mix)
        trained = {weight for module in training for weight in module.parameters()}
        return [weight for weight in model.parameters() if weight not in trained]
