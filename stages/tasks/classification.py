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
from stages.models._heads import ModelWithHead, at_least_float32
from stages.tasks._pooled import PooledTask
from stages.tasks._task import Example, Predicted
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.tokenizer import TaskTokenizer

NO_POSITIVE = "none"


class Classification(PooledTask):
    """``<bos> text <eos>`` or ``<bos> text <eos> pair <eos>``, or the tokenizer's own special
    tokens; one state predicts a label.

    ``pooling`` decides which states are tried (``PooledTask``). If a pair is too long, the longer
    text is cut first.

    ``verbalisers`` are ``label=words``: the words for a label in a prompt or in a written answer. A
    label without a verbaliser is its own text, with blanks for underscores.

    ``positive`` is the label whose F1 is ``metric: positive_f1`` (MRPC: ``equivalent``).
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
        super().__init__(labels, tokenizer, max_tokens, pooling=pooling, dropout=dropout)
        self.num_outputs = len(labels)

    @classmethod
    def check(  # type: ignore[override]
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

    def target_of(self, row: Row) -> np.ndarray:
        return np.array([self.index[row["label"]] if "label" in row else IGNORE_INDEX])

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
