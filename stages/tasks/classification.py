"""Classification of a text or of a pair of texts."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stages.core.artifacts import Json
from stages.kinds._cells import Row
from stages.kinds._text_form import verbalised
from stages.kinds.classification import POSITIVE_F1, LabelledText
from stages.models._backbone import Backbone, Pooling
from stages.models._heads import ModelWithHead, PooledHead, at_least_float32
from stages.tasks._task import Example, Predicted, Task, pooled
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.tokenizer import TaskTokenizer

NO_POSITIVE = "none"


class Classification(Task):
    """``<bos> text <eos>`` or ``<bos> text <eos> pair <eos>``, or as the tokenizer wraps them, to
    one state to a label.

    The state is the mean over tokens or, in a decoder, that of the last, which alone has read all
    of them; ``pooling`` overrides it. Of a pair that is too long the longer text is cut first.

    ``verbalisers`` are ``label=words``: what a label is called where it is text, in a prompt or as
    what is written. A label without one stands for itself, underscores as blanks.

    ``positive`` is the label whose F1 ``metric: positive_f1`` is (MRPC: ``equivalent``).
    """

    kind = LabelledText()

    def __init__(
        self,
        labels: list[str],
        tokenizer: TaskTokenizer,
        max_tokens: int,
        *,
        pooling: Literal["auto", "mean", "first", "last"] = "auto",
        dropout: float = 0.1,
        verbalisers: Sequence[str] = (),
        metric: Literal["macro_f1", "accuracy", "matthews", "positive_f1"] = "macro_f1",
        positive: str = NO_POSITIVE,
    ) -> None:
        super().__init__(labels, tokenizer, max_tokens)
        self.pooling: Literal["auto", "mean", "first", "last"] = pooling
        self.dropout = dropout

    @classmethod
    def check(
        cls,
        max_tokens: int,
        *,
        verbalisers: Sequence[str],
        metric: str,
        positive: str,
        **others: object,
    ) -> None:
        verbalised(verbalisers)
        if (metric == POSITIVE_F1) != (positive != NO_POSITIVE):
            raise ValueError(f"positive: names a label if metric is {POSITIVE_F1}, and only then")

    @classmethod
    def check_read(cls, *, is_causal: bool, pooling: str, **others: object) -> None:
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
            len(self.labels),
            dropout=self.dropout,
            pooling=self._pooling(backbone),
        )

    def encode(self, rows: Sequence[Row]) -> list[Example]:
        texts = self.tokenizer.encode([row["text"] for row in rows])
        pairs = self.tokenizer.encode([row.get("text_pair", "") for row in rows])
        examples = []
        for row, text, pair in zip(rows, texts, pairs, strict=True):
            found = self.wrap(text, pair if "text_pair" in row else None)
            label = self.index[row["label"]] if "label" in row else IGNORE_INDEX
            examples.append(
                Example(
                    row["id"],
                    np.array(found.ids),
                    np.array([label]),
                    pair_start=found.pair_start,
                    num_cut=found.num_cut,
                )
            )
        return examples

    def targets(self, examples: list[Example]) -> Json:
        labels = torch.from_numpy(np.concatenate([example.labels for example in examples]))
        return {
            "labels": labels,
            "num_targets": {"classification": int((labels != IGNORE_INDEX).sum())},
        }

    def loss(self, model: ModelWithHead, batch: Batch) -> dict[str, tuple[float, Tensor]]:
        assert batch.labels is not None
        logits = at_least_float32(model.head(model.backbone(batch), batch.document_ids))
        loss = F.cross_entropy(logits, batch.labels, ignore_index=IGNORE_INDEX, reduction="sum")
        return {"classification": (1.0, loss)}

    def flops(self, model: ModelWithHead, batch: Batch) -> int:
        return model.backbone.flops(batch) + model.head.flops(len(batch.input_ids))

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Example]) -> list[str]:
        return [each.prediction for each in self.predict_scored(model, batch, examples)]

    def predict_scored(
        self, model: ModelWithHead, batch: Batch, examples: list[Example]
    ) -> list[Predicted]:
        logits = model.head(model.backbone(batch), batch.document_ids)
        best, probabilities = logits.argmax(dim=-1), logits.float().softmax(dim=-1)
        return [
            Predicted(self.labels[i], dict(zip(self.labels, row, strict=True)))
            for i, row in zip(best.tolist(), probabilities.tolist(), strict=True)
        ]

    def columns(self, row: Row, prediction: str) -> Json:
        return {"label": prediction}
