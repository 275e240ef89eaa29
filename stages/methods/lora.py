"""LoRA: low-rank updates of a frozen backbone's linear layers (Hu et al. 2021), by ``peft``."""

from typing import Any, Literal

import torch
from torch import nn

from stages.core.seeding import seeded
from stages.methods._additions import ATTENTION, AdditionMethod, linear_layers
from stages.methods._method import freeze_backbone
from stages.models._heads import ModelWithHead


class LoRA(AdditionMethod):
    """Replaces W x by W x + alpha / rank * B A dropout(x) (section 4.1), in the attention of all
    blocks or in all of their linear layers. B is zero at first, so that the model equals the
    pretrained one.

    If one layer computes several projections (queries, keys and values in GPT-2 and ModernBERT),
    they share one A. ``attention`` means all projections of the attention, while the paper updates
    only queries and values.
    """

    def __init__(
        self,
        *,
        rank: int = 8,
        alpha: float = 16.0,
        dropout: float = 0.0,
        targets: Literal["attention", "all"] = "attention",
    ) -> None:
        if rank < 1:
            raise ValueError(f"rank must be at least 1, not {rank}")
        self.rank, self.alpha, self.dropout, self.targets = rank, alpha, dropout, targets

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        from peft import LoraConfig, inject_adapter_in_model

        freeze_backbone(model)
        base: Any = model.backbone.model
        targets = {
            layer
            for block in model.backbone.blocks
            for path, layer in linear_layers(block).items()
            if self.targets == "all" or ATTENTION.search(path)
        }
        config = LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha,
            lora_dropout=self.dropout,
            target_modules=[n for n, layer in base.named_modules() if layer in targets],
            # In GPT-2's Conv1D the matrix is transposed.
            fan_in_fan_out=any(not isinstance(layer, nn.Linear) for layer in targets),
        )
        with seeded(generator):
            inject_adapter_in_model(config, base)

    def merge(self, model: ModelWithHead) -> None:
        from peft.tuners.tuners_utils import BaseTunerLayer

        base: Any = model.backbone.model
        for path, layer in [*base.named_modules()]:
            if isinstance(layer, BaseTunerLayer):
                layer.merge()
                base.set_submodule(path, layer.get_base_layer())
