"""Prefix tuning: learnt keys and values in every layer of a frozen model (Li and Liang 2021; for
encoders, P-Tuning v2: Liu et al. 2022)."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from stages.methods._additions import AdditionMethod, drawn, freeze_backbone
from stages.models._attention import Attention
from stages.models._backbone import Backbone
from stages.models._blocks import Block
from stages.models._heads import ModelWithHead
from stages.models._transformer import TransformerBackbone
from stages.text.batch import Batch


class Prefix(AdditionMethod):
    """Adds ``num_prefix_tokens`` learnt keys and values before the keys and values of the tokens in
    each self-attention. They have no position: all tokens attend to them in the same way.

    In each layer they are initialised with the keys and values of random tokens of the vocabulary;
    the paper uses those of real words (section 7.4). A positive ``reparametrisation_width`` is the
    width of the hidden layer of a network that computes them from one learnt vector per prefix
    token (section 4.3), all initialised at random; 0 means no network, as in P-Tuning v2 for easy
    tasks.

    Raises ValueError for fewer than one prefix token, or a negative width.
    """

    def __init__(self, *, num_prefix_tokens: int = 20, reparametrisation_width: int = 0) -> None:
        if num_prefix_tokens < 1:
            raise ValueError(f"num_prefix_tokens must be at least 1, not {num_prefix_tokens}")
        if reparametrisation_width < 0:
            raise ValueError(
                f"reparametrisation_width must be at least 0, not {reparametrisation_width}"
            )
        self.length, self.width = num_prefix_tokens, reparametrisation_width

    def incompatibility(self, backbone: Backbone) -> str | None:
        if reason := super().incompatibility(backbone):
            return reason
        if isinstance(backbone, TransformerBackbone):
            return None
        return "supports our own transformers only, not public checkpoints; prompt supports both"

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        freeze_backbone(model)
        backbone = model.backbone
        blocks = [block for block in backbone.blocks if isinstance(block, Block)]
        attentions = [block.attention for block in blocks]
        d_model = backbone.d_model
        if self.width:
            hidden = _Hidden(self.length, d_model, self.width, generator=generator)
            given: list[nn.Module] = [
                _Reparametrised(hidden, 2 * d_model, generator=generator) for _ in attentions
            ]
        else:
            decodes = any(block.cross_attention is not None for block in blocks)
            of_tokens = self._of_tokens(backbone, attentions, generator, decodes=decodes)
            given = [_Given(key_value) for key_value in of_tokens]
        for attention, key_value in zip(attentions, given, strict=True):
            attention.prefix = _Prefix(key_value, attention.num_heads)

    @torch.no_grad()
    def _of_tokens(
        self,
        backbone: Backbone,
        attentions: list[Attention],
        generator: torch.Generator,
        *,
        decodes: bool,
    ) -> list[Float[Tensor, "P KV"]]:
        """Returns the keys and values of random tokens in each layer. Each token is read as a text
        of its own."""
        ids = torch.randint(backbone.vocab_size, (self.length, 1), generator=generator)
        batch = Batch(
            input_ids=ids,
            document_ids=torch.ones_like(ids),
            num_targets={},
            decoder_input_ids=ids,
            decoder_document_ids=torch.ones_like(ids),
        )
        first_states: list[Tensor] = []

        def keep(linear: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            first_states.append(output[:, 0].clone())

        hooks = [attention.key_value.register_forward_hook(keep) for attention in attentions]
        training = backbone.training
        backbone.eval()
        (backbone.decode if decodes else backbone)(batch)
        backbone.train(training)
        for hook in hooks:
            hook.remove()
        return first_states


class _Prefix(nn.Module):
    """Puts the learnt keys and values before an attention's own; every query attends to them."""

    def __init__(self, key_value: nn.Module, num_heads: int) -> None:
        super().__init__()
        self.key_value, self.num_heads = key_value, num_heads

    def forward(
        self,
        k: Float[Tensor, "B H S d"],
        v: Float[Tensor, "B H S d"],
        mask: Bool[Tensor, "B 1 T S"] | Float[Tensor, "B _ T S"],
    ) -> tuple[Tensor, Tensor, Tensor]:
        def before(prefix: Float[Tensor, "P D"], own: Tensor) -> Tensor:
            heads = prefix.unflatten(-1, (self.num_heads, -1)).transpose(0, 1)  # [P D] -> [H P d]
            return torch.cat([heads.to(own).expand(len(own), -1, -1, -1), own], dim=2)

        keys, values = self.key_value().chunk(2, dim=-1)
        seen = F.pad(mask, (len(keys), 0), value=True if mask.dtype == torch.bool else 0.0)
        return before(keys, k), before(values, v), seen


class _Given(nn.Module):
    """Learnt keys and values that are stored directly as parameters."""

    def __init__(self, key_value: Float[Tensor, "P KV"]) -> None:
        super().__init__()
        self.key_value = nn.Parameter(key_value)

    def forward(self) -> Float[Tensor, "P KV"]:
        return self.key_value


class _Hidden(nn.Module):
    """The first layer of the reparametrisation, shared by all blocks."""

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
    """Keys and values of one block, computed by its own second layer."""

    def __init__(self, hidden: _Hidden, outputs: int, *, generator: torch.Generator) -> None:
        super().__init__()
        width = len(hidden.bias)
        self.hidden = hidden
        self.weight = drawn(outputs, width, std=width**-0.5, generator=generator)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self) -> Float[Tensor, "P KV"]:
        return F.linear(self.hidden(), self.weight, self.bias)
