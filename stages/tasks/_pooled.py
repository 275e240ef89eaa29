"""Tasks that predict from one state of a text or of a pair of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from stages.tasks._cells import Row
from stages.tasks._task import Example, Task, example_of

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from stages.models._backbone import Backbone
    from stages.models._heads import ModelWithHead, PooledHead
    from stages.text.batch import Batch
    from stages.text.tokenizer import Tokenizer, Wrapped


Pooling = Literal["mean", "first", "last"]  # that of stages/models, which needs torch


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The settings of a ``PooledTask``, explained there."""

    pooling: Pooling = "mean"
    dropout: float = 0.1
    long_texts: Literal["cut", "head_tail"] = "cut"


USUAL = Reading()


class PooledTask(Task):
    """Predicts ``num_outputs`` numbers for each text, by a linear head on one state of the text.

    The one state is the ``mean`` of the text's states, the ``first`` (BERT) or the ``last``, the
    only one of a decoder that has read all of the text (GPT).

    If a pair is too long, the longer text is cut first. ``long_texts: cut`` reads the beginning of
    a text that is too long. ``head_tail`` reads the same number of tokens, half from the beginning
    and half from the end (Sun et al. 2019, section 5.3.1, who read 128 and 382 tokens of 512).
    """

    num_outputs = 1

    def __init__(
        self,
        labels: list[str],
        tokenizer: Tokenizer,
        max_tokens: int,
        reading: Reading = USUAL,
    ) -> None:
        super().__init__(labels, tokenizer, max_tokens)
        self.pooling: Pooling = reading.pooling
        self.dropout = reading.dropout
        self.long_texts = reading.long_texts

    @classmethod
    def check_read(  # type: ignore[override]
        cls, *, is_causal: bool, pooling: str, **others: object
    ) -> None:
        if is_causal and pooling == "first":
            raise ValueError(
                "pooling: the first state of a causal model has read one token of the text; use "
                "last or mean"
            )

    def states_read(self, backbone: Backbone) -> str:
        return "mean of tokens" if self.pooling == "mean" else f"{self.pooling} token"

    def head(self, backbone: Backbone) -> PooledHead:
        from stages.models._heads import PooledHead

        self.check_read(is_causal=self.is_causal, pooling=self.pooling)
        return PooledHead(
            backbone.d_model, self.num_outputs, dropout=self.dropout, pooling=self.pooling
        )

    def wrap(self, text: Sequence[int], pair: Sequence[int] | None = None) -> Wrapped:
        from stages.text.tokenizer import longest_first

        wrapped = super().wrap(text, pair)
        if self.long_texts != "head_tail" or not wrapped.num_cut:
            return wrapped
        texts = [text] if pair is None else [text, pair]
        lengths = [len(each) for each in texts]
        shares = longest_first(lengths, sum(lengths) - wrapped.num_cut)
        ends = [head_and_tail(each, share) for each, share in zip(texts, shares, strict=True)]
        return wrapped._replace(ids=self.tokenizer.wrap(*ends))

    def target_of(self, row: Row) -> np.ndarray:
        """Returns the label of a row, as an array [1], or IGNORE_INDEX or NaN if it is unknown."""
        raise AssertionError("a task whose rows are no texts or pairs encodes them itself")

    def encode(self, rows: Sequence[Row]) -> list[Example]:
        texts = self.tokenizer.encode([row["text"] for row in rows])
        pairs = self.tokenizer.encode([row.get("text_pair", "") for row in rows])
        return [
            example_of(
                row["id"],
                self.wrap(text, pair if "text_pair" in row else None),
                self.target_of(row),
            )
            for row, text, pair in zip(rows, texts, pairs, strict=True)
        ]

    def logits(self, model: ModelWithHead, batch: Batch) -> Float[Tensor, "B C"]:
        """Returns the outputs of the head for each text."""
        return model.head(model.backbone(batch), batch.document_ids)

    def outputs(self, model: ModelWithHead, batch: Batch) -> Float[Tensor, " B"]:
        """Returns a number for each text, from a head with one output: in float64 if the states are
        in float64, else in float32, since bfloat16 would make different numbers equal."""
        import torch

        from stages.models._heads import at_least_float32

        states = at_least_float32(model.backbone(batch))
        with torch.autocast(states.device.type, enabled=False):
            return model.head(states, batch.document_ids).squeeze(-1)


def head_and_tail(ids: Sequence[int], length: int) -> list[int]:
    """Returns ``length`` ids of a text that has at least as many: half from its beginning and half
    from its end. If ``length`` is odd, the beginning has one more."""
    tail = length // 2
    return [*ids[: length - tail], *ids[len(ids) - tail :]]
