"""Prompt tuning: learnt vectors before the embeddings of a frozen model's input (Lester et al.
2021), by ``peft``."""

from typing import Any

import torch

from stages.methods._method import AdditionMethod, freeze_backbone
from stages.methods._peft import LearntEmbeddings
from stages.models._heads import ModelWithHead
from stages.models._transformer import seeded


class Prompt(AdditionMethod):
    """Adds ``num_prompt_tokens`` learnt vectors before every input, initialised with the embeddings
    of random tokens of the vocabulary (section 2.1).

    The backbone processes the vectors like tokens: they have positions, and all tokens of a decoder
    attend to them. It returns the states of the input's tokens only, so that heads and pooling
    ignore the prompt.

    Raises ValueError for fewer than one vector.
    """

    requires_head = True
    late_imports = ("peft", "torch._dynamo")

    def __init__(self, *, num_prompt_tokens: int = 20) -> None:
        if num_prompt_tokens < 1:
            raise ValueError(f"num_prompt_tokens must be at least 1, not {num_prompt_tokens}")
        self.num_added_tokens = num_prompt_tokens

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        from peft import PromptEmbedding, PromptTuningConfig

        freeze_backbone(model)
        table: Any = model.backbone.token_embedding
        settings = PromptTuningConfig(
            num_virtual_tokens=self.num_added_tokens,
            token_dim=table.weight.shape[1],
            num_transformer_submodules=1,
            prompt_tuning_init="SAMPLE_VOCAB",
        )
        with seeded(generator):
            vectors = PromptEmbedding(settings, table)
        LearntEmbeddings(vectors, self.num_added_tokens).attach(model.backbone)
