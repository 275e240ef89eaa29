"""Heads: modules that predict the labels of a task from the states of a backbone."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from stages.models._backbone import Backbone, Pooling
from stages.text.batch import ABSENT, IGNORE_INDEX, PADDING, Batch

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
        torch's ``fully_shard`` and ``compile`` act on such calls."""
        return loss(self, batch)

    def compile(self, *args: object, **kwargs: object) -> None:
        """Compiles the computation of a loss as a whole (with a decoder, a teacher and the logits
        over the vocabulary) and, for predictions without a loss, the backbone alone. If the
        backbone names modules in ``compiled_alone``, compiles only those."""
        # A process trains many models with the same code; beyond this limit torch stops compiling.
        torch._dynamo.config.recompile_limit = MOST_COMPILED
        parts = self.backbone.compiled_alone
        if parts is None:
            super().compile(*args, **kwargs)
            parts = [self.backbone]
        for part in parts:
            part.compile(*args, **kwargs)


@torch.no_grad()
def initialise_head(head: nn.Module, *, generator: torch.Generator, std: float = 0.02) -> None:
    """Initialises all weights of a head: matrices normal, scales of norms 1, biases 0."""
    for name, weight in head.named_parameters():
        if weight.dim() >= 2:
            weight.normal_(0, std, generator=generator)
        else:
            weight.fill_(1.0 if name.endswith("weight") else 0.0)


def at_least_float32(logits: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """Returns logits as float32; float64 logits stay float64 (a probe is fitted in float64). A loss
    needs more digits than bfloat16 has."""
    return logits if logits.dtype == torch.float64 else logits.float()


class LinearHead(nn.Module):
    """Dropout and one linear layer (BERT's head for classification and tagging)."""

    def __init__(self, d_model: int, num_classes: int, *, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(d_model, num_classes)

    def forward(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N C"]:
        return self.linear(self.dropout(states))

    @property
    def reader(self) -> nn.Linear:
        """A layer that receives every state that the head reads."""
        return self.linear

    @torch.no_grad()
    def absorb(self, mean: Float[Tensor, " D"], std: Float[Tensor, " D"]) -> None:
        """Changes the weights so that raw states give the logits that (states - mean) / std gave
        before. Without a bias, each class's logits shift by a constant, on which no loss or
        prediction may depend."""
        self.linear.weight /= std
        if self.linear.bias is not None:
            self.linear.bias.sub_(self.linear.weight @ mean)


class PooledHead(LinearHead):
    """A linear head on one state per row, pooled from the states of its tokens."""

    def __init__(self, d_model: int, num_classes: int, *, dropout: float, pooling: Pooling) -> None:
        super().__init__(d_model, num_classes, dropout=dropout)
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

    def __init__(
        self, d_model: int, max_length: int, *, dropout: float, no_answer: Pooling
    ) -> None:
        super().__init__(d_model, 2, dropout=dropout)
        self.max_length = max_length
        self.no_answer: Pooling = no_answer

    def forward(  # type: ignore[override]
        self,
        states: Float[Tensor, "B T D"],
        document_ids: Int[Tensor, "B T"],
        candidates: Bool[Tensor, "B T"],
    ) -> dict[str, Float[Tensor, "B 1+T"]]:
        logits = at_least_float32(super().forward(states))
        no_answer = pool(logits, document_ids, self.no_answer).unsqueeze(1)
        tokens = logits.masked_fill(~candidates.unsqueeze(-1), -torch.inf)
        start, end = torch.cat([no_answer, tokens], dim=1).unbind(dim=-1)
        return {"start": start, "end": end}

    def classes(self, ends: Int[Tensor, "B 2"], length: int) -> dict[str, Int[Tensor, " B"]]:
        """The correct class of each term of the loss; ``ends`` holds the classes of the first and
        the last token."""
        return {"start": ends[:, 0], "end": ends[:, 1]}

    def scores(
        self, logits: dict[str, Float[Tensor, "B C"]], length: int
    ) -> tuple[Float[Tensor, " B"], Float[Tensor, "B T L"]]:
        """The score of no answer, and the scores of all spans: the sums of the logits of their two
        ends. Entry [t, l] is the span of 1 + l tokens that begins with token t."""
        start, end = logits["start"], logits["end"]
        longest = min(self.max_length, length)
        spans = start[:, 1:, None] + following(end[:, 1:], longest, beyond=-torch.inf)
        return start[:, 0] + end[:, 0], spans


class SpanHead(nn.Module):
    """A logit for each span of at most ``max_length`` tokens, from the states of its two ends and
    the mean of its states, with a hidden layer of ReLUs (after Lee et al. 2016, who use the ends
    only).

    Class 0 means no answer; its logit comes from the state of the row's first token, or of the last
    in a causal model, where the first has no context (``no_answer``). Class 1 + t L + l is the span
    of 1 + l tokens that begins with token t.
    """

    def __init__(
        self, d_model: int, max_length: int, *, d_span: int, dropout: float, no_answer: Pooling
    ) -> None:
        super().__init__()
        self.max_length = max_length
        self.no_answer: Pooling = no_answer
        self.dropout = nn.Dropout(dropout)
        # A layer on [start; end; mean], split into three: each token's product serves all spans.
        self.start = nn.Linear(d_model, d_span)
        self.end = nn.Linear(d_model, d_span, bias=False)
        self.mean = nn.Linear(d_model, d_span, bias=False)
        self.score = nn.Linear(d_span, 1, bias=False)

    def forward(
        self,
        states: Float[Tensor, "B T D"],
        document_ids: Int[Tensor, "B T"],
        candidates: Bool[Tensor, "B T"],
    ) -> dict[str, Float[Tensor, "B C"]]:
        states = self.dropout(states)
        longest = min(self.max_length, states.shape[1])
        lengths = torch.arange(1, longest + 1, device=states.device)[:, None]
        before = F.pad(at_least_float32(self.mean(states)).cumsum(dim=1), (0, 0, 1, 0))
        sums = following(before[:, 1:], longest) - before[:, :-1, None]
        ends = following(self.end(states), longest)
        hidden = F.relu(self.start(states).unsqueeze(2) + ends + sums / lengths)
        inside = candidates.unsqueeze(2) & following(candidates, longest)
        spans = at_least_float32(self.score(hidden)).squeeze(-1).masked_fill(~inside, -torch.inf)
        # No answer is scored like a span of one token, which is its own start, end and mean.
        one = pool(states, document_ids, self.no_answer)
        no_answer = self.score(F.relu(self.start(one) + self.end(one) + self.mean(one)))
        no_answer = at_least_float32(no_answer)
        return {"span": torch.cat([no_answer, spans.flatten(1)], dim=1)}

    @property
    def reader(self) -> nn.Linear:
        """A layer that receives every state that the head reads."""
        return self.start

    @torch.no_grad()
    def absorb(self, mean: Float[Tensor, " D"], std: Float[Tensor, " D"]) -> None:
        """Changes the weights so that raw states give the logits that (states - mean) / std gave
        before."""
        for layer in (self.start, self.end, self.mean):
            layer.weight /= std
            self.start.bias.sub_(layer.weight @ mean)

    def classes(self, ends: Int[Tensor, "B 2"], length: int) -> dict[str, Int[Tensor, " B"]]:
        """The correct class of the only term of the loss, in rows of ``length`` tokens; ``ends``
        holds the classes of the first and the last token, numbered as in ``StartEndHead``."""
        first, last = ends.unbind(dim=1)
        spans = 1 + (first - 1) * min(self.max_length, length) + last - first
        return {"span": torch.where(first > 0, spans, first)}

    def scores(
        self, logits: dict[str, Float[Tensor, "B C"]], length: int
    ) -> tuple[Float[Tensor, " B"], Float[Tensor, "B T L"]]:
        """The score of no answer, and the scores of all spans. Entry [t, l] is the span of 1 + l
        tokens that begins with token t."""
        no_answer, spans = logits["span"][:, 0], logits["span"][:, 1:]
        return no_answer, spans.unflatten(1, (length, -1))


def following(
    values: Shaped[Tensor, "B T *D"], longest: int, *, beyond: float = 0
) -> Shaped[Tensor, "B T L *D"]:
    """Returns for each token its values and those of the next ``longest`` - 1 tokens; values after
    the end of the row are ``beyond``."""
    room = (0, 0) * (values.dim() - 2) + (0, longest - 1)
    return F.pad(values, room, value=beyond).unfold(1, longest, 1).movedim(-1, 2)


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
