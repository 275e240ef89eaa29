"""Prompt tuning: learnt vectors before the embeddings of a frozen model's input (Lester et al.
2021), by ``peft``."""

from typing import Any

import torch
import torch.nn.functional as F

from stages.core.seeding import seeded
from stages.methods._additions import AdditionMethod, vectors_for_rows
from stages.methods._method import freeze_backbone
from stages.models._heads import ModelWithHead
from stages.text.batch import Batch


class Prompt(AdditionMethod):
    """Adds ``num_prompt_tokens`` learnt vectors before every input, initialised with the embeddings
    of random tokens of the vocabulary (section 2.1).

    The backbone processes the vectors like tokens: they have positions, and all tokens of a decoder
    attend to them. It returns the states of the input's tokens only, so that heads and pooling
    ignore the prompt.
    """

    requires_head = True

    def __init__(self, *, num_prompt_tokens: int = 20) -> None:
        if num_prompt_tokens < 1:
            raise ValueError(f"num_prompt_tokens must be at least 1, not {num_prompt_tokens}")
        self.num_added_tokens = num_prompt_tokens

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        from peft import PromptEmbedding, PromptTuningConfig

        freeze_backbone(model)
        backbone, length = model.backbone, self.num_added_tokens
        table: Any = backbone.token_embedding
        settings = PromptTuningConfig(
            num_virtual_tokens=length,
            token_dim=table.weight.shape[1],
            num_transformer_submodules=1,
            prompt_tuning_init="SAMPLE_VOCAB",
        )
        with seeded(generator):
            backbone.model.learnt = PromptEmbedding(settings, table)

        def with_room(_: Any, inputs: tuple[Batch]) -> Batch:
            """Makes room for the vectors before each row, which must be one document."""
            fill = {"input_ids": 0, "document_ids": 1, "host_document_ids": 1, "segment_ids": 0}
            padded: dict[str, Any] = {
                name: F.pad(ids, (length, 0), value=value)
                for name, value in (fill | {"visible": True}).items()
                if (ids := getattr(inputs[0], name)) is not None
            }
            return Batch(num_targets={}, **padded)

        def with_vectors(reader: Any, inputs: Any, given: dict[str, Any]) -> tuple[Any, Any]:
            ids = given["input_ids"]
            embedded = reader.get_input_embeddings()(ids[:, length:])
            vectors = vectors_for_rows(reader, ids, length).to(embedded.dtype)
            whole = torch.cat([vectors, embedded], dim=1)
            return inputs, given | {"input_ids": None, "inputs_embeds": whole}

        backbone.register_forward_pre_hook(with_room)
        backbone.model.register_forward_pre_hook(with_vectors, with_kwargs=True)
        backbone.register_forward_hook(lambda _, inputs, states: states[:, length:])
