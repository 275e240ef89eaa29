"""Prefix tuning: learnt keys and values in every layer of a frozen model (Li and Liang 2021; for
encoders, P-Tuning v2: Liu et al. 2022), by ``peft``."""

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from stages.core.seeding import seeded
from stages.methods._additions import AdditionMethod, vectors_for_rows
from stages.methods._method import freeze_backbone
from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead

# Families whose models read given keys and values. Models of other families (ModernBERT, the
# encoder of T5, ALBERT) ignore them, or fail.
FAMILIES = (
    *("bert", "roberta", "xlm-roberta", "camembert", "electra", "ernie", "bart", "eurobert"),
    *("gpt2", "gpt_neox", "opt", "llama", "mistral", "qwen2", "qwen3", "olmo2", "phi", "smollm3"),
    "starcoder2",
)


class Prefix(AdditionMethod):
    """Adds ``num_prefix_tokens`` learnt keys and values before the keys and values of the tokens in
    each self-attention. They have no position: all tokens attend to them in the same way.

    They are normal at first, as in ``peft``; the paper begins with those of real words (section
    7.4). ``reparametrisation_width`` is the width of the hidden layer of a network that computes
    them from one learnt vector per prefix token (section 4.3); 0 means no network.
    """

    requires_head = True

    def __init__(self, *, num_prefix_tokens: int = 20, reparametrisation_width: int = 0) -> None:
        if num_prefix_tokens < 1:
            raise ValueError(f"num_prefix_tokens must be at least 1, not {num_prefix_tokens}")
        self.length, self.width = num_prefix_tokens, reparametrisation_width

    def incompatibility(self, backbone: Backbone) -> str | None:
        if reason := super().incompatibility(backbone):
            return reason
        family = backbone.model.config.model_type
        return (
            None if family in FAMILIES else f"{family} reads no given keys and values; use prompt"
        )

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        from peft import PrefixEncoder, PrefixTuningConfig
        from transformers import DynamicCache

        freeze_backbone(model)
        backbone, config = model.backbone, model.backbone.model.config
        num_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or backbone.d_model // config.num_attention_heads
        settings = PrefixTuningConfig(
            num_virtual_tokens=self.length,
            num_layers=len(backbone.blocks),
            num_attention_heads=num_heads,
            token_dim=num_heads * width,
            encoder_hidden_size=self.width or None,
            prefix_projection=bool(self.width),
        )
        with seeded(generator):
            backbone.model.learnt = PrefixEncoder(settings)

        def before(reader: nn.Module, inputs: Any, given: dict[str, Any]) -> tuple[Any, Any]:
            vectors = vectors_for_rows(reader, given["input_ids"], self.length)
            # [B P 2JHd] -> [J 2 B H P d]
            layers = vectors.unflatten(-1, (-1, 2, num_heads, width)).permute(2, 3, 0, 4, 1, 5)
            cache: Any = DynamicCache()
            for number, (keys, values) in enumerate(layers):
                cache.update(keys, values, number)
            mask = given["attention_mask"]  # added to logits, or 1 for a token
            seen = F.pad(mask, (self.length, 0), value=0.0 if mask.is_floating_point() else 1)
            return inputs, given | {"past_key_values": cache, "attention_mask": seen}

        # The kernels for documents of different lengths know no keys before the input.
        backbone.register_forward_pre_hook(lambda _, inputs: replace(inputs[0], document_starts={}))
        backbone.model.register_forward_pre_hook(before, with_kwargs=True)
