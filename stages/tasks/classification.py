"""Classification of a text or of a pair of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from stages.core.artifacts import Json
from stages.core.components import Settings, unknown
from stages.tasks._cells import Row, structure_of
from stages.tasks._kind import CellSettings
from stages.tasks._labels import ASK, LabelCase, NoLabel, read_label
from stages.tasks._metric import F1_OF
from stages.tasks._plain_text import folded, plain_text
from stages.tasks._pooled import PooledTask, Reading
from stages.tasks._task import Example, Predicted, balanced
from stages.tasks._text_form import NO_LABEL, TextForm, label_words, verbalised
from stages.text.ignored import IGNORE_INDEX

if TYPE_CHECKING:
    from torch import Tensor

    from stages.models._heads import ModelWithHead
    from stages.text.batch import Batch

POSITIVE_F1 = "positive_f1"
BY_VALIDATION = "validation"  # chooses the threshold of two classes by the metric on validation


class _AsText(TextForm):
    """Writes the label's words; any other text is read as ``NO_LABEL``."""

    def words_of(self, labels: Sequence[str]) -> dict[str, str]:
        return label_words(labels, self.settings.get("verbalisers", ()))

    def answer(self, row: Row) -> str | None:
        return self.words[row["label"]] if "label" in row else None

    def prediction(self, row: Row, text: str) -> str:
        label_of = {plain_text(words): label for label, words in self.words.items()}
        return label_of.get(plain_text(text), NO_LABEL)


NO_POSITIVE = "none"
EVEN = 0.5  # the usual threshold of two classes: the more probable one is predicted


@dataclass(frozen=True, kw_only=True)
class _CellSettings(CellSettings):
    no_label: NoLabel = ASK
    label_case: LabelCase = ASK


class Classification(PooledTask):
    """Rows of ``text``, maybe ``text_pair``, and ``label``, which may be in a list of one.

    Rows whose label is in ``no_label`` are left out. ``label_case`` says whether labels that differ
    in case alone are one class.

    Reads ``<bos> text <eos>`` or ``<bos> text <eos> pair <eos>``, or the tokenizer's own special
    tokens, and predicts a label from one state.

    ``pooling`` decides which state it is, and ``long_texts`` which part of a too long
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

    inputs = ("text",)
    optional = ("text_pair",)
    target = "label"
    metrics = ("macro_f1", "accuracy", "matthews")
    has_classes = stratified = True
    form = _AsText
    cells = _CellSettings()
    schema = Reading

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

    def read(self, column: str, value: Any, row: Row, place: str) -> Any:
        if column != "label":
            return super().read(column, value, row, place)
        items = structure_of(value) if isinstance(value, str) else value
        if isinstance(items, list):
            if len(items) > 1:
                raise ValueError(f"{place} has {len(items)} labels; multi_label takes several")
            value = items[0] if items else None
        return read_label(value, place, self.cells.no_label, self.cells.label_case)

    def checked(self, row: Json, place: str) -> Json | None:
        return None if row["label"] is None else row

    def compared_by(self, settings: Settings) -> tuple[str, str]:
        """Replaces ``positive_f1`` by the F1 of the label that ``positive`` names."""
        chosen, other = super().compared_by(settings)
        return (F1_OF + settings["positive"], other) if chosen == POSITIVE_F1 else (chosen, other)

    def check_labels(self, labels: list[str], settings: Settings) -> None:
        positive = settings.get("positive", NO_LABEL)
        if settings.get("metric") == POSITIVE_F1 and positive not in labels:
            raise ValueError(f"positive: {unknown(positive, labels)}")
        if settings.get("threshold") == BY_VALIDATION and len(labels) != 2:
            raise ValueError(f"threshold: {BY_VALIDATION} is for two labels, not {len(labels)}")
        if verbalisers := settings.get("verbalisers"):
            label_words(labels, verbalisers)

    def group_key(self, row: Row) -> str:
        """Returns one key for all pairs with the same first text (hypotheses about one premise)."""
        return folded(row["text"]) if "text_pair" in row else self.split_key(row)

    def labels_of(self, row: Row) -> list[str]:
        return [row["label"]]

    def predicted_columns(self, row: Row, prediction: str) -> Json:
        return {"label": prediction}

    def target_of(self, row: Row) -> np.ndarray:
        return np.array([self.index[row["label"]] if "label" in row else IGNORE_INDEX])

    def targets(self, examples: list[Example]) -> Json:
        import torch

        from stages.tasks._batches import label_weights

        labels = torch.from_numpy(np.concatenate([example.labels for example in examples]))
        return {
            "labels": labels,
            "label_weights": label_weights(examples),
            "num_targets": {"classification": int((labels != IGNORE_INDEX).sum())},
        }

    def weighted(self, examples: list[Example]) -> list[Example]:
        return balanced(examples) if self.class_weights == "balanced" else examples

    def loss(self, model: ModelWithHead, batch: Batch) -> dict[str, tuple[float, Tensor]]:
        from stages.models._heads import at_least_float32
        from stages.tasks._batches import cross_entropy

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
