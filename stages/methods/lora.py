"""LoRA: low-rank updates of a frozen backbone's linear layers (Hu et al. 2021)."""

from collections.abc import Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from stages.methods._additions import AdditionMethod, drawn, freeze_backbone, sub_layers
from stages.models._backbone import Backbone, is_conv1d
from stages.models._heads import ModelWithHead

A, B = ".lora.a", ".lora.b"  # names of the two factors of an update, after the name of its layer


class LoRA(AdditionMethod):
    """Replaces W x by W x + alpha / rank * B A dropout(x) (section 4.1), in the attention of all
    blocks or in all of their linear layers. B is zero at first, so that the model equals the
    pretrained one.

    If one layer computes several projections (keys and values in our models; in GPT-2 also
    queries), they share one A. ``attention`` means all projections of the attention, while the
    paper updates only queries and values.

    Raises ValueError for values out of range.
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
        if alpha <= 0:
            raise ValueError(f"alpha must be more than 0, not {alpha}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), not {dropout}")
        self.rank, self.scale, self.dropout, self.targets = rank, alpha / rank, dropout, targets

    def incompatibility(self, backbone: Backbone) -> str | None:
        if reason := super().incompatibility(backbone):
            return reason
        attentions = [s for block in backbone.blocks for s in sub_layers(block) if s.is_attention]
        return None if attentions else "finds no attention in the blocks of this model"

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        freeze_backbone(model)
        for block in model.backbone.blocks:
            for sub_layer in sub_layers(block):
                if sub_layer.is_attention or self.targets == "all":
                    for linear in sub_layer.linears:
                        linear.module.lora = _LowRank(
                            linear.inputs,
                            linear.outputs,
                            rank=self.rank,
                            scale=self.scale,
                            dropout=self.dropout,
                            generator=generator,
                        )
                        linear.module.register_forward_hook(_update)

    @torch.no_grad()
    def merged(self, trained: Mapping[str, Tensor], model: ModelWithHead) -> dict[str, Tensor]:
        """Returns the weights with W + alpha / rank * B A in place of A and B (section 4.1)."""
        weights = dict(trained)
        for layer in [name.removesuffix(A) for name in trained if name.endswith(A)]:
            update = self.scale * weights.pop(layer + B) @ weights.pop(layer + A)
            weight = model.get_parameter(f"{layer}.weight")
            transposed = is_conv1d(model.get_submodule(layer))
            weights[f"{layer}.weight"] = weight + (update.T if transposed else update)
        return weights


class _LowRank(nn.Module):
    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        rank: int,
        scale: float,
        dropout: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.a = drawn(rank, inputs, std=inputs**-0.5, generator=generator)
        self.b = nn.Parameter(torch.zeros(outputs, rank))
        self.scale, self.dropout = scale, nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "*N inputs"]) -> Float[Tensor, "*N outputs"]:
        return self.scale * F.linear(F.linear(self.dropout(x), self.a), self.b)


def _update(linear: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return output + linear.get_submodule("lora")(inputs[0])
