"""Tasks that predict from one state of a text or of a pair of texts."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from stages.kinds._cells import Row
from stages.models._backbone import Backbone, Pooling
from stages.models._heads import ModelWithHead, PooledHead, at_least_float32
from stages.tasks._task import Example, Task
from stages.text.batch import Batch
from stages.text.tokenizer import TaskTokenizer, Wrapped, longest_first

LongTexts = Literal["cut", "head_tail"]  # what is read of a text that is too long


class PooledTask(Task):
    """Predicts ``num_outputs`` numbers for each text, by a linear head on one state of the text.

    ``pooling: auto`` tries the mean of the text's states and the usual state of the architecture:
    in a decoder the last state, the only one that has read all of the text (GPT), and in a
    bidirectional transformer the first (BERT). In a biLSTM the usual state is the last, where the
    forward half has read all of the text, as in a recurrent classifier (Dai and Le 2015). If both
    are equally good, the mean is kept.

    If a pair is too long, the longer text is cut first. ``long_texts: cut`` reads the beginning of
    a text that is cut, and ``head_tail`` reads half of the tokens at its beginning and half at its
    end (Sun et al. 2019, section 5.3.1, who read 128 and 382 tokens of 512).
    """

    num_outputs = 1
    tried: ClassVar[tuple[str, ...]] = ("pooling", "dropout")
    tried_by_head: ClassVar[tuple[str, ...]] = ("pooling", "dropout")

    def __init__(
        self,
        labels: list[str],
        tokenizer: TaskTokenizer,
        max_tokens: int,
        *,
        pooling: Literal["auto", "mean", "first", "last"],
        dropout: float,
        long_texts: LongTexts = "cut",
    ) -> None:
        super().__init__(labels, tokenizer, max_tokens)
        self.pooling: Pooling = "mean" if pooling == "auto" else pooling
        self.dropout = dropout
        self.long_texts = long_texts

    @classmethod
    def check_read(  # type: ignore[override]
        cls, *, is_causal: bool, pooling: str, **others: object
    ) -> None:
        if is_causal and pooling == "first":
            raise ValueError(
                "pooling: the first state of a causal model has read one token of the text; use "
                "auto, last or mean"
            )

    @classmethod
    def values(cls, setting: str, value: Any, backbone: Backbone) -> Sequence[Any]:
        if (setting, value) != ("pooling", "auto"):
            return [value]
        has_first = backbone.is_transformer and not backbone.is_causal
        return ["mean", "first" if has_first else "last"]

    def states_read(self, backbone: Backbone) -> str:
        return "mean of tokens" if self.pooling == "mean" else f"{self.pooling} token"

    def head(self, backbone: Backbone) -> PooledHead:
        self.check_read(is_causal=self.is_causal, pooling=self.pooling)
        return PooledHead(
            backbone.d_model,
            self.num_outputs,
            dropout=self.dropout,
            pooling=self.pooling,
        )

    def wrap(self, text: Sequence[int], pair: Sequence[int] | None = None) -> Wrapped:
        wrapped = super().wrap(text, pair)
        if self.long_texts == "cut" or not wrapped.num_cut:
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
        examples = []
        for row, text, pair in zip(rows, texts, pairs, strict=True):
            wrapped = self.wrap(text, pair if "text_pair" in row else None)
            example = Example(
                row["id"],
                np.array(wrapped.ids),
                self.target_of(row),
                pair_start=wrapped.pair_start,
                num_cut=wrapped.num_cut,
            )
            examples.append(example)
        return examples

    def outputs(self, model: ModelWithHead, batch: Batch) -> Float[Tensor, " B"]:
        """Returns the outputs of a head with one output. They are float32 at any precision, since
        bfloat16 would make different numbers equal, and float64 if the states are."""
        states = at_least_float32(model.backbone(batch))
        with torch.autocast(states.device.type, enabled=False):
            return model.head(states, batch.document_ids).squeeze(-1)


def head_and_tail(ids: Sequence[int], length: int) -> list[int]:
    """Returns ``length`` of a text's ids, which are no fewer: half of them from its beginning and
    half from its end, and the odd one from its beginning."""
    tail = length // 2
    return [*ids[: length - tail], *ids[len(ids) - tail :]]
