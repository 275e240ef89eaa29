"""Prompt tuning: learnt vectors before the embeddings of a frozen model's input (Lester et al.
2021)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from stages.methods._additions import AdditionMethod, freeze_backbone
from stages.models._heads import ModelWithHead
from stages.text.batch import Batch


class Prompt(AdditionMethod):
    """Adds ``num_prompt_tokens`` learnt vectors before every input, initialised with the embeddings
    of random tokens of the vocabulary (section 2.1).

    The backbone processes the vectors like tokens: they have positions, and all tokens of a decoder
    attend to them. It returns the states of the input's tokens only, so that heads and pooling
    ignore the prompt.

    Raises ValueError for fewer than one vector.
    """

    requires_head = True

    def __init__(self, *, num_prompt_tokens: int = 20) -> None:
        if num_prompt_tokens < 1:
            raise ValueError(f"num_prompt_tokens must be at least 1, not {num_prompt_tokens}")
        self.num_added_tokens = num_prompt_tokens

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        freeze_backbone(model)
        backbone = model.backbone
        table = backbone.token_embedding
        prompted = _PromptedEmbedding(table, self.num_added_tokens, generator=generator)
        for module in [*backbone.modules()]:
            for name, child in module.named_children():
                if child is table and module is not prompted:
                    setattr(module, name, prompted)

        def before(module: nn.Module, inputs: tuple[Batch]) -> tuple[Batch]:
            return (_with_prompt(inputs[0], prompted.ids),)

        def after(module: nn.Module, inputs: tuple[Batch], states: Tensor) -> Tensor:
            return states[:, len(prompted.ids) :]

        backbone.register_forward_pre_hook(before)
        backbone.register_forward_hook(after)


def _with_prompt(batch: Batch, prompt: range) -> Batch:
    """Returns the batch with the ids of the prompt before each row. A row must hold one document,
    as rows of tasks do."""
    length = len(prompt)
    ids = torch.arange(prompt.start, prompt.stop, device=batch.input_ids.device)
    ids = ids.expand(len(batch.input_ids), -1)
    segments, visible = batch.segment_ids, batch.visible
    return Batch(
        input_ids=torch.cat([ids, batch.input_ids], dim=1),
        document_ids=F.pad(batch.document_ids, (length, 0), value=1),
        segment_ids=None if segments is None else F.pad(segments, (length, 0), value=0),
        visible=None if visible is None else F.pad(visible, (length, 0), value=True),
        num_targets={},
    )


class _PromptedEmbedding(nn.Module):
    """A frozen embedding of tokens (ids below V) and the vectors of a prompt (ids from V on)."""

    def __init__(self, table: nn.Module, length: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.table = table
        num_tokens = len(table.get_parameter("weight"))
        self.ids = range(num_tokens, num_tokens + length)
        drawn = torch.randint(num_tokens, (length,), generator=generator)
        self.prompt = nn.Parameter(table(drawn).detach().clone())

    @property
    def weight(self) -> Float[Tensor, "V D"]:
        """The embedding of the tokens, which the logits over the vocabulary share."""
        return self.table.get_parameter("weight")

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        index = ids - self.ids[0]
        is_prompt = index >= 0
        tokens = self.table(ids.masked_fill(is_prompt, 0))
        return torch.where(is_prompt[..., None], self.prompt[index.clamp(min=0)], tokens)
