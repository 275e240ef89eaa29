"""Heads: what stands between a backbone's states and a task's labels."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from stages.models._backbone import Pooling
from stages.text.batch import PADDING


class Headed(nn.Module):
    """A backbone with the head of an objective or of a task; what is trained."""

    backbone: Any  # a Backbone, or what a method put in its place: batch -> states, "B T D"
    head: Any

    def __init__(self, backbone: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head


@torch.no_grad()
def initialise_head(head: nn.Module, *, generator: torch.Generator, std: float = 0.02) -> None:
    """Draw all weights of a head anew: matrices normal, norms 1, biases 0."""
    for name, weight in head.named_parameters():
        if weight.dim() >= 2:
            weight.normal_(0, std, generator=generator)
        else:
            weight.fill_(1.0 if name.endswith("weight") else 0.0)


class LinearHead(nn.Module):
    """Dropout and one linear layer (BERT's head for classification and for tagging)."""

    def __init__(self, d_model: int, num_classes: int, *, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(d_model, num_classes)

    def forward(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N C"]:
        return self.linear(self.dropout(states))

    def flops(self, num_states: int) -> int:
        return 2 * num_states * self.linear.in_features * self.linear.out_features


class PooledHead(LinearHead):
    """A linear head on one state per row, pooled from those of its tokens."""

    def __init__(self, d_model: int, num_classes: int, *, dropout: float, pooling: Pooling) -> None:
        super().__init__(d_model, num_classes, dropout=dropout)
        self.pooling: Pooling = pooling

    def forward(  # type: ignore[override]
        self, states: Float[Tensor, "B T D"], document_ids: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B C"]:
        return super().forward(pool(states, document_ids, self.pooling))


def pool(
    states: Float[Tensor, "B T D"], document_ids: Int[Tensor, "B T"], pooling: Pooling
) -> Float[Tensor, "B D"]:
    """One state per row from those of its tokens, padding left out."""
    real = document_ids != PADDING
    match pooling:
        case "first":
            return states[:, 0]
        case "last":
            last = real.sum(dim=1) - 1
            return states[torch.arange(len(states), device=states.device), last]
        case "mean":
            weights = real.unsqueeze(-1).to(states)
            return (states * weights).sum(dim=1) / weights.sum(dim=1)


def gather(states: Float[Tensor, "B T D"], positions: Int[Tensor, "B M"]) -> Float[Tensor, "B M D"]:
    """The states at ``positions`` of each row."""
    return states.gather(1, positions.unsqueeze(-1).expand(-1, -1, states.shape[-1]))
