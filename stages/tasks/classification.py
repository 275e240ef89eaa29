"""Classification of a text or of a pair of texts."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from stages.core.artifacts import Json
from stages.kinds._cells import Row
from stages.kinds._text_form import verbalised
from stages.kinds.classification import BY_VALIDATION, POSITIVE_F1, LabelledText
from stages.models._heads import ModelWithHead, at_least_float32
from stages.tasks._pooled import PooledTask, Reading
from stages.tasks._task import Example, Predicted, balanced, cross_entropy, label_weights
from stages.text.batch import IGNORE_INDEX, Batch

NO_POSITIVE = "none"
EVEN = 0.5  # the usual threshold of two classes: the more probable one is predicted


class Classification(PooledTask):
    """Reads ``<bos> text <eos>`` or ``<bos> text <eos> pair <eos>``, or the tokenizer's own special
    tokens, and predicts a label from one state.

    ``pooling`` decides which states are tried, and ``long_texts`` which part of a too long
    text is read (``PooledTask``). If a pair is too long, the longer text is cut first.

    ``verbalisers`` are ``label=words``: the words for a label in a prompt or in a written answer. A
    label without a verbaliser is its own text, with blanks for underscores.

    ``positive`` is the label whose F1 is ``metric: positive_f1`` (MRPC: ``equivalent``).

    ``class_weights: balanced`` weights the training loss of a label by n / (K m), if the trial has
    n training labels of K classes and m of them are of the label's class. A class that a small
    label budget misses is not learnt, as without weights. The validation loss is not weighted.

    ``threshold: validation`` is for two labels: each trial chooses the probability from which the
    second label is predicted so that the metric on validation is best (``trials/validation.py``).
    With 0.5 the more probable label is predicted.

    ``class_weights``, ``threshold`` and the settings of ``PooledTask`` have no effect where answers
    are written as text or prompted for.
    """

    kind = LabelledText()
    schema = Reading
    tried: ClassVar[tuple[str, ...]] = (*PooledTask.tried, "class_weights")
    tried_by_head: ClassVar[tuple[str, ...]] = (*PooledTask.tried_by_head, "class_weights")

    def __init__(
        self,
        *from_code: Any,
        verbalisers: Sequence[str] = (),
        metric: Literal["macro_f1", "accuracy", "matthews", "positive_f1"] = "macro_f1",
        positive: str = NO_POSITIVE,
        class_weights: Literal["none", "balanced"] = "none",
        threshold: float | Literal["validation"] = EVEN,
    ) -> None:
        super().__init__(*from_code)
        self.num_outputs = len(self.labels)
        self.class_weights, self.threshold = class_weights, threshold

    @classmethod
    def check(  # type: ignore[override]
        cls,
        max_tokens: int,
        *,
        verbalisers: Sequence[str],
        metric: str,
        positive: str,
        threshold: float | str,
        **others: object,
    ) -> None:
        verbalised(verbalisers)
        if threshold not in (EVEN, BY_VALIDATION):
            raise ValueError(f"threshold: must be {EVEN} or {BY_VALIDATION}, not {threshold:g}")
        if (metric == POSITIVE_F1) != (positive != NO_POSITIVE):
            raise ValueError(f"positive: names a label if metric is {POSITIVE_F1}, and only then")

    def target_of(self, row: Row) -> np.ndarray:
        return np.array([self.index[row["label"]] if "label" in row else IGNORE_INDEX])

    def targets(self, examples: list[Example]) -> Json:
        labels = torch.from_numpy(np.concatenate([example.labels for example in examples]))
        return {
            "labels": labels,
            "label_weights": label_weights(examples),
            "num_targets": {"classification": int((labels != IGNORE_INDEX).sum())},
        }

    def weighted(self, examples: list[Example]) -> list[Example]:
        return balanced(examples) if self.class_weights == "balanced" else examples

    def loss(self, model: ModelWithHead, batch: Batch) -> dict[str, tuple[float, Tensor]]:
        logits = at_least_float32(self.logits(model, batch))
        return {"classification": (1.0, cross_entropy(logits, batch))}

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Example]) -> list[str]:
        return [each.at(0.0) for each in self.predict_scored(model, batch, examples)]

    def predict_scored(
        self, model: ModelWithHead, batch: Batch, examples: list[Example]
    ) -> list[Predicted]:
        logits = self.logits(model, batch)
        best, probabilities = logits.argmax(dim=-1), logits.float().softmax(dim=-1)
        scores = [dict(zip(self.labels, row, strict=True)) for row in probabilities.tolist()]
        if self.threshold == BY_VALIDATION:
            # Log-odds of the second label. Probabilities near 1 would be rounded to equal numbers.
            first, second = self.labels
            margins = logits.float() @ logits.new_tensor([-1.0, 1.0]).float()
            return [
                Predicted(second, of_labels, margin, otherwise=first)
                for of_labels, margin in zip(scores, margins.tolist(), strict=True)
            ]
        return [
            Predicted(self.labels[i], of_labels)
            for i, of_labels in zip(best.tolist(), scores, strict=True)
        ]
