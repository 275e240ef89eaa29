"""Heads, which predict labels from the states of a backbone, and the likelihood of next tokens."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from stages.models._backbone import Backbone, Pooling
from stages.text.batch import ABSENT, IGNORE_INDEX, PADDING, Batch

POSITIONS_AT_ONCE = 1024  # number of positions whose logits are in memory
MOST_COMPILED = 64  # variants of one function: per model design, task, and training or evaluation
T = TypeVar("T")


class ModelWithHead(nn.Module):
    """A backbone with the head of an objective or a task."""

    backbone: Backbone
    head: Any  # a module; only the objective or task that made it knows its methods

    def __init__(self, backbone: Backbone, head: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head

    def forward(self, loss: "Callable[[ModelWithHead, Batch], T]", batch: Batch) -> T:
        """Returns ``loss(self, batch)``. The loss is computed inside a call of this module because
        torch's ``fully_shard`` acts on such calls."""
        return loss(self, batch)

    def compile(self, *args: object, **kwargs: object) -> None:
        # A process trains many models with the same code; beyond this limit torch stops compiling.
        torch._dynamo.config.recompile_limit = MOST_COMPILED
        self.backbone.compile(*args, **kwargs)


@torch.no_grad()
def initialise_head(head: nn.Module, *, generator: torch.Generator, std: float = 0.02) -> None:
    """Initialises all weights of a head: matrices normal, scales of norms 1, biases 0."""
    for name, weight in head.named_parameters():
        if weight.dim() >= 2:
            weight.normal_(0, std, generator=generator)
        else:
            weight.fill_(1.0 if name.endswith("weight") else 0.0)


def at_least_float32(logits: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """Returns logits as float32, since a loss needs more digits than bfloat16 has; those of a
    probe stay float64."""
    return logits if logits.dtype == torch.float64 else logits.float()


def embedding_table(num_rows: int, width: int) -> nn.Embedding:
    """Returns an uninitialised embedding. (On device meta torch's own initialisation would load
    torch's compiler.)"""
    return nn.Embedding.from_pretrained(torch.empty(num_rows, width), freeze=False)


class LinearHead(nn.Module):
    """Dropout and one linear layer (BERT's head for classification and tagging)."""

    def __init__(
        self, d_model: int, num_classes: int, *, dropout: float, bias: bool = True
    ) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(d_model, num_classes, bias=bias)

    def forward(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N C"]:
        return self.linear(self.dropout(states))


class PooledHead(LinearHead):
    """A linear head on one state per row, pooled from the states of its tokens."""

    def __init__(self, d_model: int, num_classes: int, *, pooling: Pooling, **linear: Any) -> None:
        super().__init__(d_model, num_classes, **linear)
        self.pooling: Pooling = pooling

    def forward(  # type: ignore[override]
        self, states: Float[Tensor, "B T D"], document_ids: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B C"]:
        return super().forward(pool(states, document_ids, self.pooling))


class StartEndHead(LinearHead):
    """Two logits for each token: as the first and as the last token of the answer (BERT; Devlin et
    al. 2019, sections 4.2 and 4.3).

    Class 0 of both means no answer; its logit is that of the row's first token, or of the last in a
    causal model, where the first has no context (``no_answer``). Class 1 + t is token t.
    """

    def __init__(self, d_model: int, *, dropout: float, no_answer: Pooling) -> None:
        super().__init__(d_model, 2, dropout=dropout)
        self.no_answer: Pooling = no_answer

    def forward(  # type: ignore[override]
        self,
        states: Float[Tensor, "B T D"],
        document_ids: Int[Tensor, "B T"],
        candidates: Bool[Tensor, "B T"],
    ) -> tuple[Float[Tensor, "B 1+T"], Float[Tensor, "B 1+T"]]:
        """Returns the logits of the first and of the last token."""
        logits = at_least_float32(super().forward(states))
        no_answer = pool(logits, document_ids, self.no_answer).unsqueeze(1)
        tokens = logits.masked_fill(~candidates.unsqueeze(-1), -torch.inf)
        first, last = torch.cat([no_answer, tokens], dim=1).unbind(dim=-1)
        return first, last


def pool(
    states: Float[Tensor, "B T D"], document_ids: Int[Tensor, "B T"], pooling: Pooling
) -> Float[Tensor, "B D"]:
    """Returns one state per row, pooled from the states of its tokens; padding is ignored."""
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


def labelled(
    states: Float[Tensor, "B T D"], labels: Int[Tensor, "B T"], places: Int[Tensor, "2 K"]
) -> tuple[Float[Tensor, "K D"], Int[Tensor, " K"]]:
    """Returns the states and the labels at ``places``; the label of an absent place is
    IGNORE_INDEX."""
    rows, columns = places.clamp(min=0)
    return states[rows, columns], labels[rows, columns].where(places[0] != ABSENT, IGNORE_INDEX)


def log_likelihoods(model: Backbone, batch: Batch) -> Float[Tensor, " B"]:
    """Returns the log-probability, in nats, of each row's labels, which are the next tokens. Logits
    are computed only at positions with a label; sums are in float32."""
    assert batch.labels is not None and batch.label_places is not None
    rows, _ = batch.label_places.clamp(min=0)
    states, labels = labelled(model(batch), batch.labels, batch.label_places)
    by_label = [
        -F.cross_entropy(model.unembed(some).float(), right, reduction="none")
        for some, right in zip(
            states.split(POSITIONS_AT_ONCE), labels.split(POSITIONS_AT_ONCE), strict=True
        )
    ]
    total = torch.zeros(len(batch.labels), device=rows.device)
    return total.index_add(0, rows, torch.cat(by_label)) if by_label else total
