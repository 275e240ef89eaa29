"""Tasks that predict from one state of a text or of a pair of texts."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from stages.kinds._cells import Row
from stages.models._backbone import Backbone, Pooling
from stages.models._heads import ModelWithHead, PooledHead, at_least_float32
from stages.tasks._task import Example, Task, pooled
from stages.text.batch import Batch
from stages.text.tokenizer import TaskTokenizer


class PooledTask(Task):
    """``num_outputs`` numbers for each text, of a linear head on the mean of its states or, in a
    decoder, on the last, which alone has read all of it; ``pooling`` overrides it.

    Of a pair that is too long the longer text is cut first.
    """

    num_outputs = 1

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

    @classmethod
    def check_read(  # type: ignore[override]
        cls, *, is_causal: bool, pooling: str, **others: object
    ) -> None:
        if is_causal and pooling == "first":
            raise ValueError(
                "pooling: the first state of a causal model has read one token of the text; use "
                "auto, last or mean"
            )

    def states_read(self, backbone: Backbone) -> str:
        return pooled(self._pooling(backbone))

    def _pooling(self, backbone: Backbone) -> Pooling:
        return backbone.pooling if self.pooling == "auto" else self.pooling

    def head(self, backbone: Backbone) -> PooledHead:
        self.check_read(is_causal=self.is_causal, pooling=self.pooling)
        return PooledHead(
            backbone.d_model,
            self.num_outputs,
            dropout=self.dropout,
            pooling=self._pooling(backbone),
        )

    def target_of(self, row: Row) -> np.ndarray:
        """The label of a row of texts, [1]; what stands for an unknown one if it has none."""
        raise AssertionError("a task whose rows are no texts or pairs encodes them itself")

    def encode(self, rows: Sequence[Row]) -> list[Example]:
        texts = self.tokenizer.encode([row["text"] for row in rows])
        pairs = self.tokenizer.encode([row.get("text_pair", "") for row in rows])
        examples = []
        for row, text, pair in zip(rows, texts, pairs, strict=True):
            found = self.wrap(text, pair if "text_pair" in row else None)
            example = Example(
                row["id"],
                np.array(found.ids),
                self.target_of(row),
                pair_start=found.pair_start,
                num_cut=found.num_cut,
            )
            examples.append(example)
        return examples

    def outputs(self, model: ModelWithHead, batch: Batch) -> Float[Tensor, " B"]:
        """Of a head of one output. In float32 at any precision, since bfloat16 would make different
        numbers equal; in float64 if the states are."""
        states = at_least_float32(model.backbone(batch))
        with torch.autocast(states.device.type, enabled=False):
            return model.head(states, batch.document_ids).squeeze(-1)

    def flops(self, model: ModelWithHead, batch: Batch) -> int:
        return model.backbone.flops(batch) + model.head.flops(len(batch.input_ids))
