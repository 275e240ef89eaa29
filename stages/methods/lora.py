"""LoRA: low-rank updates of a frozen backbone's linear layers (Hu et al. 2021), by ``peft``."""

from typing import Literal

import torch

from stages.methods._layers import attention_layers, linear_layers
from stages.methods._method import AdditionMethod, freeze_backbone
from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead
from stages.models._transformer import seeded


class LoRA(AdditionMethod):
    """Replaces W x by W x + alpha / rank * B A dropout(x) (section 4.1), in the attention of all
    blocks or in all of their linear layers. B is zero at first, so that the model equals the
    pretrained one.

    If one layer computes several projections (queries, keys and values in GPT-2 and ModernBERT),
    they share one A. ``attention`` means all projections of the attention, while the paper updates
    only queries and values.

    Raises ValueError for values out of range.
    """

    late_imports = ("peft", "torch._dynamo")

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
        if alpha <= 0:
            raise ValueError(f"alpha must be more than 0, not {alpha}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), not {dropout}")
        self.rank, self.alpha, self.dropout, self.targets = rank, alpha, dropout, targets

    def incompatibility(self, backbone: Backbone) -> str | None:
        if reason := super().incompatibility(backbone):
            return reason
        has_attention = all(attention_layers(block) for block in backbone.blocks)
        return None if has_attention else "finds no attention in the blocks of this model"

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        from peft import LoraConfig, inject_adapter_in_model

        freeze_backbone(model)
        backbone = model.backbone
        targets = {
            layer
            for block in backbone.blocks
            for layer in (
                attention_layers(block)
                if self.targets == "attention"
                else [layer for _, layer in linear_layers(block)]
            )
        }
        config = LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha,
            lora_dropout=self.dropout,
            target_modules=[n for n, layer in backbone.model.named_modules() if layer in targets],
            # In GPT-2's Conv1D the matrix is transposed.
            fan_in_fan_out=any(type(layer).__name__ == "Conv1D" for layer in targets),
        )
        with seeded(generator):
            inject_adapter_in_model(config, backbone.model)

    def merge(self, model: ModelWithHead) -> None:
        from peft.tuners.tuners_utils import BaseTunerLayer

        base = model.backbone.model
        for path, layer in [*base.named_modules()]:
            if isinstance(layer, BaseTunerLayer):
                layer.merge()
                base.set_submodule(path, layer.get_base_layer())
