"""Prefix tuning: learnt keys and values in every layer of a frozen model (Li and Liang 2021; of
encoders, P-Tuning v2: Liu et al. 2022)."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from stages.methods._additions import (
    TRANSFORMERS,
    Addition,
    change_flops,
    count_additions,
    drawn,
    freeze_backbone,
)
from stages.methods._method import Method
from stages.models._attention import Attention
from stages.models._backbone import Backbone, TransformerBackbone
from stages.models._blocks import Block
from stages.models._heads import ModelWithHead
from stages.text.batch import Batch


class Prefix(Method):
    """``num_prefix_tokens`` keys and values before those of the tokens in each self-attention, at
    no position: every token attends to them alike.

    They begin as the keys and values that tokens drawn from the vocabulary have in each layer, the
    paper's initialisation by real words (section 7.4). With ``reparametrisation_width`` they are
    given by two linear layers, so wide in between, from one vector for each of the prefix
    (section 4.3), which begin at random; 0 is without, as in P-Tuning v2 for labels that are easy.

    Raises ValueError for a prefix of fewer than one, or a negative width.
    """

    architectures = TRANSFORMERS

    def __init__(self, *, num_prefix_tokens: int = 20, reparametrisation_width: int = 0) -> None:
        if num_prefix_tokens < 1:
            raise ValueError(f"num_prefix_tokens must be at least 1, not {num_prefix_tokens}")
        if reparametrisation_width < 0:
            raise ValueError(
                f"reparametrisation_width must be at least 0, not {reparametrisation_width}"
            )
        self.length, self.width = num_prefix_tokens, reparametrisation_width

    def misfit(self, backbone: Backbone) -> str | None:
        if fault := super().misfit(backbone):
            return fault
        ours = isinstance(backbone, TransformerBackbone)
        return None if ours else "fits our own transformers, not public checkpoints; prompt does"

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        freeze_backbone(model)
        backbone: TransformerBackbone = model.backbone
        attentions = [block.attention for block in backbone.blocks if isinstance(block, Block)]
        d_model = backbone.d_model
        if self.width:
            hidden = _Hidden(self.length, d_model, self.width, generator=generator)
            given: list[nn.Module] = [
                _Reparametrised(hidden, 2 * d_model, generator=generator) for _ in attentions
            ]
        else:
            given = [_Given(kv) for kv in self._of_tokens(backbone, attentions, generator)]
        for attention, key_value in zip(attentions, given, strict=True):
            attention.prefix = _Prefix(key_value, attention.num_heads, 4 * self.length * d_model)
        count_additions(backbone)
        each = 2 * self.length * self.width * (d_model + 2 * d_model)
        change_flops(backbone, lambda flops, batch: flops(batch) + len(attentions) * each)

    @torch.no_grad()
    def _of_tokens(
        self, backbone: Any, attentions: list[Attention], generator: torch.Generator
    ) -> list[Float[Tensor, "P KV"]]:
        """What each layer makes of tokens, each read by itself."""
        ids = torch.randint(backbone.vocab_size, (self.length, 1), generator=generator)
        batch = Batch(
            input_ids=ids,
            document_ids=torch.ones_like(ids),
            num_targets={},
            decoder_input_ids=ids,
            decoder_document_ids=torch.ones_like(ids),
        )
        found: list[Tensor] = []

        def keep(linear: nn.Module, inputs: Any, output: Tensor) -> None:
            found.append(output[:, 0].clone())

        hooks = [attention.key_value.register_forward_hook(keep) for attention in attentions]
        decodes = any(block.cross_attention is not None for block in backbone.blocks)
        training = backbone.training
        backbone.eval()
        (backbone.decode if decodes else backbone)(batch)
        backbone.train(training)
        for hook in hooks:
            hook.remove()
        return found


class _Prefix(Addition):
    """Puts keys and values before an attention's own, for every query to see."""

    def __init__(self, key_value: nn.Module, num_heads: int, flops_per_token: int) -> None:
        super().__init__()
        self.key_value, self.num_heads = key_value, num_heads
        self.flops_per_token = flops_per_token

    def forward(
        self,
        k: Float[Tensor, "B H S d"],
        v: Float[Tensor, "B H S d"],
        mask: Bool[Tensor, "B 1 T S"] | Float[Tensor, "B H T S"],
    ) -> tuple[Tensor, Tensor, Tensor]:
        def before(prefix: Float[Tensor, "P D"], own: Tensor) -> Tensor:
            heads = prefix.unflatten(-1, (self.num_heads, -1)).transpose(0, 1)  # [P D] -> [H P d]
            return torch.cat([heads.to(own).expand(len(own), -1, -1, -1), own], dim=2)

        keys, values = self.key_value().chunk(2, dim=-1)
        seen = F.pad(mask, (len(keys), 0), value=True if mask.dtype == torch.bool else 0.0)
        return before(keys, k), before(values, v), seen


class _Given(nn.Module):
    """Keys and values that are themselves learnt."""

    def __init__(self, key_value: Float[Tensor, "P KV"]) -> None:
        super().__init__()
        self.key_value = nn.Parameter(key_value)

    def forward(self) -> Float[Tensor, "P KV"]:
        return self.key_value


class _Hidden(nn.Module):
    """The first layer of the reparametrisation, which all blocks share."""

    def __init__(
        self, length: int, d_model: int, width: int, *, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.prefix = drawn(length, d_model, std=1.0, generator=generator)
        self.weight = drawn(width, d_model, std=d_model**-0.5, generator=generator)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self) -> Float[Tensor, "P width"]:
        return F.linear(self.prefix, self.weight, self.bias).tanh()


class _Reparametrised(nn.Module):
    """Keys and values of one block, by its own second layer."""

    def __init__(self, hidden: _Hidden, outputs: int, *, generator: torch.Generator) -> None:
        super().__init__()
        width = len(hidden.bias)
        self.hidden = hidden
        self.weight = drawn(outputs, width, std=width**-0.5, generator=generator)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self) -> Float[Tensor, "P KV"]:
        return F.linear(self.hidden(), self.weight, self.bias)
