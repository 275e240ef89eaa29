"""Classification of a text or of a pair of texts."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from stages.core.artifacts import Json
from stages.core.components import Settings, unknown
from stages.tasks._cells import Row, folded, plain_text, structure_of
from stages.tasks._labels import LABEL_SETTINGS, label_in
from stages.tasks._metric import F1_OF
from stages.tasks._pooled import PooledTask, Reading
from stages.tasks._task import Batch, Example, ModelWithHead, Predicted
from stages.tasks._text_form import NO_LABEL, TextForm
from stages.text.ignored import IGNORE_INDEX

POSITIVE_F1 = "positive_f1"
NO_POSITIVE = "none"
BY_VALIDATION = "validation"  # chooses the threshold of two classes by the metric on validation
EVEN = 0.5  # the usual threshold of two classes: the more probable one is predicted


class Classification(PooledTask):
    """Rows of ``text``, maybe ``text_pair``, and ``label``, which may be in a list of one. Rows
    whose label is in ``no_label`` are left out (``LABEL_SETTINGS``).

    The label is predicted from one state of the text (``PooledTask``).

    ``verbalisers`` are ``label=words``: the words for a label in a prompt or in a written answer. A
    label without a verbaliser is its own text, with blanks for underscores.

    ``positive`` is the label whose F1 is ``metric: positive_f1`` (MRPC: ``equivalent``).

    ``class_weights: balanced`` weights the training loss by class (``Task.weighted``).

    ``threshold: validation`` is for two labels: each trial chooses the probability from which the
    second label is predicted so that the metric on validation is best (``trials/validation.py``).

    ``class_weights``, ``threshold`` and the settings of ``PooledTask`` have no effect where answers
    are written as text or prompted for.
    """

    target = "label"
    metrics = ("macro_f1", "accuracy", "matthews")
    has_classes = stratified = has_text_form = True
    cell_settings = LABEL_SETTINGS
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
    def check(cls, max_tokens: int, **settings: Any) -> None:
        super().check(max_tokens, **settings)
        if (threshold := settings["threshold"]) not in (EVEN, BY_VALIDATION):
            raise ValueError(f"threshold: must be {EVEN} or {BY_VALIDATION}, not {threshold:g}")
        if (settings["metric"] == POSITIVE_F1) != (settings["positive"] != NO_POSITIVE):
            raise ValueError(f"positive: names a label if metric is {POSITIVE_F1}, and only then")

    def check_labels(self, labels: list[str], settings: Settings) -> None:
        positive = settings.get("positive", NO_LABEL)
        if settings.get("metric") == POSITIVE_F1 and positive not in labels:
            raise ValueError(f"positive: {unknown(positive, labels)}")
        if settings.get("threshold") == BY_VALIDATION and len(labels) != 2:
            raise ValueError(f"threshold: {BY_VALIDATION} is for two labels, not {len(labels)}")
        super().check_labels(labels, settings)

    def compared_by(self, settings: Settings) -> tuple[str, str]:
        """Returns what ``Task.compared_by`` does; ``positive_f1`` becomes the F1 of the label
        ``positive``."""
        chosen, other = super().compared_by(settings)
        return (F1_OF + settings["positive"], other) if chosen == POSITIVE_F1 else (chosen, other)

    def read(self, column: str, value: Any, row: Row, place: str) -> Any:
        if column != "label":
            return super().read(column, value, row, place)
        items = structure_of(value) if isinstance(value, str) else value
        if isinstance(items, list):
            if len(items) > 1:
                raise ValueError(f"{place} has {len(items)} labels; multi_label takes several")
            value = items[0] if items else None
        return label_in(value, place, self.cells)

    def checked(self, row: Json, place: str) -> Json | None:
        return None if row["label"] is None else row

    def written(self, row: Row, form: TextForm) -> str:
        return form.words[row["label"]]

    def meaning(self, row: Row, text: str, form: TextForm) -> str:
        return form.label_of.get(plain_text(text), NO_LABEL)

    def group_key(self, row: Row) -> str:
        """Returns one key for all pairs with the same first text."""
        return folded(row["text"]) if "text_pair" in row else self.split_key(row)

    def target_of(self, row: Row) -> np.ndarray:
        return np.array([self.index[row["label"]] if "label" in row else IGNORE_INDEX])

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Example]) -> list[Any]:
        logits = self.outputs(model, batch)
        probabilities = logits.float().softmax(dim=-1).tolist()
        scores = [dict(zip(self.labels, row, strict=True)) for row in probabilities]
        if self.threshold == BY_VALIDATION:
            # Log-odds of the second label. Probabilities near 1 would be rounded to equal numbers.
            first, second = self.labels
            margins = (logits.float() @ logits.new_tensor([-1.0, 1.0]).float()).tolist()
            pairs = zip(scores, margins, strict=True)
            return [Predicted(second, of_row, margin, first) for of_row, margin in pairs]
        best = logits.argmax(dim=-1).tolist()
        pairs = zip(best, scores, strict=True)
        return [Predicted(self.labels[i], of_row) for i, of_row in pairs]
