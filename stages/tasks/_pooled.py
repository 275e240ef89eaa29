"""Tasks that predict numbers from one state of a text or of a pair of texts."""

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead, PooledHead
from stages.tasks._task import Task
from stages.text.batch import Batch
from stages.text.tokenizer import TaskTokenizer


class Wrapped(NamedTuple):
    """A text or a pair of texts between special tokens."""

    ids: list[int]
    pair_start: int | None  # where the second text begins


class PooledTask(Task):
    """``num_outputs`` numbers for each text, of a linear head on the mean of its states or, in a
    decoder, on the last, which alone has read all of it; ``pooling`` overrides it."""

    num_outputs: ClassVar[int] = 1

    def __init__(
        self,
        labels: list[str],
        tokenizer: TaskTokenizer,
        max_tokens: int,
        *,
        pooling: Literal["auto", "mean", "first", "last"],
        dropout: float,
    ) -> None:
        super().__init__(labels, tokenizer, max_tokens)
        self.pooling: Literal["auto", "mean", "first", "last"] = pooling
        self.dropout = dropout

    def head(self, backbone: Backbone) -> PooledHead:
        pooling = backbone.pooling if self.pooling == "auto" else self.pooling
        return PooledHead(backbone.d_model, self.num_outputs, dropout=self.dropout, pooling=pooling)

    def outputs(self, model: ModelWithHead, batch: Batch) -> Float[Tensor, " B"]:
        """In float32 at any precision: bfloat16 would make different numbers equal."""
        states = model.backbone(batch)
        with torch.autocast(states.device.type, enabled=False):
            return model.head(states.float(), batch.document_ids).squeeze(-1)

    def flops(self, model: ModelWithHead, batch: Batch) -> int:
        return model.backbone.flops(batch) + model.head.flops(len(batch.input_ids))

    def wrapped(self, text: Sequence[int], pair: Sequence[int] | None) -> Wrapped:
        """Cut to ``max_tokens``, the longer text first, no special token."""
        room = max(self.max_tokens - len(self.tokenizer.wrap([], None if pair is None else [])), 0)
        if pair is None:
            return Wrapped(self.tokenizer.wrap(text[:room]), None)
        first = max(min(len(text), room - len(pair)), min(len(text), room // 2))
        text, pair = text[:first], pair[: room - first]
        before = len(self.tokenizer.before) + len(text) + len(self.tokenizer.between)
        return Wrapped(self.tokenizer.wrap(text, pair), before)
