"""Tasks that predict from one state of a text or of a pair of texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from stages.core.components import Settings
from stages.tasks._cells import Row
from stages.tasks._task import Backbone, Batch, Example, ModelWithHead, Task, Tensor, example_of, nn
from stages.tasks._text_form import label_words, verbalised

Pooling = Literal["mean", "first", "last"]  # that of stages/models, which needs torch


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The settings of a ``PooledTask``, explained there."""

    pooling: Pooling = "mean"
    dropout: float = 0.1
    long_texts: Literal["cut", "head_tail"] = "cut"


class PooledTask(Task):
    """Predicts ``num_outputs`` numbers for each text or pair, by a linear head on one state of
    ``<bos> text <eos>`` or ``<bos> text <eos> pair <eos>``, or the tokenizer's own special tokens.

    The one state is the ``mean`` of the text's states, the ``first`` (BERT) or the ``last``, the
    only one of a decoder that has read all of the text (GPT).

    If a pair is too long, the longer text is cut first. ``long_texts: cut`` reads the beginning of
    a text that is too long, ``head_tail`` half of the tokens from the beginning and half from the
    end (Sun et al. 2019, section 5.3.1, who read 128 and 382 tokens of 512).
    """

    inputs = ("text",)
    optional = ("text_pair",)
    num_outputs = 1
    has_bias: ClassVar[bool] = True  # of the head

    def __init__(
        self, labels: list[str], tokenizer: Any, max_tokens: int, reading: Reading | None = None
    ) -> None:
        super().__init__(labels, tokenizer, max_tokens)
        self.reading = reading or Reading()
        self.reads_ends = self.reading.long_texts == "head_tail"
        pooling = self.reading.pooling
        self.read_at = "mean of tokens" if pooling == "mean" else f"{pooling} token"

    @classmethod
    def check(cls, max_tokens: int, **settings: Any) -> None:
        verbalised(settings.get("verbalisers", ()))

    def check_labels(self, labels: list[str], settings: Settings) -> None:
        if verbalisers := settings.get("verbalisers"):
            label_words(labels, verbalisers)

    @classmethod
    def check_read(cls, *, is_causal: bool, **settings: Any) -> None:
        if is_causal and settings["pooling"] == "first":
            raise ValueError(
                "pooling: the first state of a causal model has read one token of the text; use "
                "last or mean"
            )

    def head(self, backbone: Backbone) -> nn.Module:
        from stages.models._heads import PooledHead

        settings: Any = {"pooling": self.reading.pooling, "dropout": self.reading.dropout}
        self.check_read(is_causal=self.is_causal, **settings)
        return PooledHead(backbone.d_model, self.num_outputs, bias=self.has_bias, **settings)

    def target_of(self, row: Row) -> np.ndarray:
        """Returns the label of a row, as an array [1], or IGNORE_INDEX or NaN if it is unknown."""
        raise AssertionError("a task whose rows are no texts or pairs encodes them itself")

    def encode(self, rows: Sequence[Row]) -> list[Example]:
        texts = self.tokenizer.encode([row["text"] for row in rows])
        pairs = self.tokenizer.encode([row.get("text_pair", "") for row in rows])
        encoded = [
            self.wrap(text, pair if "text_pair" in row else None)
            for row, text, pair in zip(rows, texts, pairs, strict=True)
        ]
        return [example_of(r, e, self.target_of(r)) for r, e in zip(rows, encoded, strict=True)]

    def outputs(self, model: ModelWithHead, batch: Batch) -> Float[Tensor, "B C"]:
        return model.head(model.backbone(batch), batch.document_ids)

    def numbers(self, model: ModelWithHead, batch: Batch) -> Float[Tensor, " B"]:
        """Returns a number for each text, from a head with one output, in float32 or float64, since
        bfloat16 would make different numbers equal."""
        import torch

        from stages.models._heads import at_least_float32

        states = at_least_float32(model.backbone(batch))
        with torch.autocast(states.device.type, enabled=False):
            return model.head(states, batch.document_ids).squeeze(-1)
