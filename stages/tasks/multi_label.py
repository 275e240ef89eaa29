"""Multi-label classification of a text or of a pair of texts."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stages.core.artifacts import Json
from stages.kinds._cells import Row
from stages.kinds._text_form import verbalised
from stages.kinds.multi_label import TextWithLabels, written
from stages.models._heads import ModelWithHead, at_least_float32
from stages.tasks._pooled import PooledTask, Reading
from stages.tasks._task import Example, Predicted
from stages.text.batch import IGNORE_INDEX, Batch


class MultiLabel(PooledTask):
    """Reads ``<bos> text <eos>`` or ``<bos> text <eos> pair <eos>``, or the tokenizer's own special
    tokens, and predicts the probability of each label independently from one state (transformers'
    ``multi_label_classification``).

    The loss is the mean binary cross-entropy over texts and labels. Every label with a probability
    above ``threshold`` is predicted; there may be none.

    ``verbalisers`` are ``label=words``, as in classification. In text output, the words of
    the labels are joined by commas.
    """

    kind = TextWithLabels()
    schema = Reading

    def __init__(
        self,
        *from_code: Any,
        threshold: float = 0.5,
        verbalisers: Sequence[str] = (),
        metric: Literal["micro_f1", "macro_f1_of_labels"] = "micro_f1",
    ) -> None:
        super().__init__(*from_code)
        self.num_outputs, self.threshold = len(self.labels), threshold

    @classmethod
    def check(  # type: ignore[override]
        cls, max_tokens: int, *, threshold: float, verbalisers: Sequence[str], **others: object
    ) -> None:
        verbalised(verbalisers)
        if not 0 < threshold < 1:
            raise ValueError(f"threshold: must be between 0 and 1, not {threshold:g}")

    def target_of(self, row: Row) -> np.ndarray:
        """Returns 1 for each label that the row has, else 0, [L]; IGNORE_INDEX if unknown."""
        if "labels" not in row:
            return np.full(len(self.labels), IGNORE_INDEX)
        # A label that train does not have cannot be predicted.
        has = [self.index[label] for label in row["labels"] if label in self.index]
        return np.isin(np.arange(len(self.labels)), has).astype(np.int64)

    def targets(self, examples: list[Example]) -> Json:
        labels = torch.from_numpy(np.stack([example.labels for example in examples]))
        return {
            "labels": labels,
            "num_targets": {"multi_label": int((labels != IGNORE_INDEX).sum())},
        }

    def loss(self, model: ModelWithHead, batch: Batch) -> dict[str, tuple[float, Tensor]]:
        assert batch.labels is not None
        logits = at_least_float32(self.logits(model, batch))
        is_known = (batch.labels != IGNORE_INDEX).to(logits.dtype)
        loss = F.binary_cross_entropy_with_logits(
            logits, batch.labels * is_known, weight=is_known, reduction="sum"
        )
        return {"multi_label": (1.0, loss)}

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Example]) -> list[str]:
        return [each.prediction for each in self.predict_scored(model, batch, examples)]

    def predict_scored(
        self, model: ModelWithHead, batch: Batch, examples: list[Example]
    ) -> list[Predicted]:
        logits = self.logits(model, batch)
        predictions = []
        for row in logits.float().sigmoid().tolist():
            scores = dict(zip(self.labels, row, strict=True))
            chosen = [label for label, share in scores.items() if share > self.threshold]
            predictions.append(Predicted(written(chosen), scores))
        return predictions

    def longest_as_text(self, longest_class: int) -> int:
        """Returns enough tokens for every label with a comma after it."""
        return 2 * longest_class * len(self.labels)
