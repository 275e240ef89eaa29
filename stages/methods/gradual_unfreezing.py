"""Gradual unfreezing: training starts with the head and adds layers from the top down, epoch by
epoch (Howard and Ruder 2018, section 3.3)."""

from collections.abc import Iterable

from torch import nn

from stages.methods._method import TrainedMethod, mix_of_layers
from stages.models._heads import ModelWithHead


class GradualUnfreezing(TrainedMethod):
    """Trains only the head (and an ELMo's mix of layers) in the first epoch, and in each later
    epoch ``blocks_per_epoch`` more blocks, from the top down. Weights outside the blocks
    (embeddings, a final norm) start to train with the lowest block. A task without a head starts
    with the top blocks. With too few epochs, the lowest blocks stay as they were pretrained.

    All layers have one learning rate, unlike in the paper, where it decreases from layer to layer.
    """

    def __init__(self, *, blocks_per_epoch: int = 1) -> None:
        if blocks_per_epoch < 1:
            raise ValueError(f"blocks_per_epoch must be at least 1, not {blocks_per_epoch}")
        self.blocks_per_epoch = blocks_per_epoch

    def frozen(self, model: ModelWithHead, epoch: int) -> Iterable[nn.Parameter]:
        blocks = model.backbone.blocks
        begun = epoch if any(True for _ in model.head.parameters()) else epoch + 1
        num_waiting = max(len(blocks) - begun * self.blocks_per_epoch, 0)
        if not num_waiting:
            return []
        training = {*model.head.parameters(), *mix_of_layers(model.backbone)}
        training.update(weight for block in blocks[num_waiting:] for weight in block.parameters())
        return [weight for weight in model.parameters() if weight not in training]
