"""Multi-label classification of a text or of a pair of texts."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.tasks._cells import EmptyCellError, Row, is_missing, plain_text, short, structure_of
from stages.tasks._labels import LABEL_SETTINGS, label_in, label_of, written_labels
from stages.tasks._metric import Sums, metric_of_sums
from stages.tasks._pooled import PooledTask, Reading
from stages.tasks._task import Batch, CellSetting, Example, Losses, ModelWithHead, Predicted
from stages.tasks._text_form import TextForm
from stages.text.ignored import IGNORE_INDEX

NOTHING = "none"  # the text for no label
YES, NO = ("1", "true", "t", "yes", "y"), ("0", "false", "f", "no", "n")


def _counts(
    gold: Sequence[str], predicted: Sequence[str], *, of_gold: bool = False
) -> Float[np.ndarray, "n L 3"]:
    """Returns three numbers (1 or 0) for each row and label: whether the label is an answer, is
    predicted, and is both. With ``of_gold`` only labels that are an answer of some row count."""
    sets = [[{*json.loads(text)} for text in texts] for texts in (gold, predicted)]
    labels = sorted(set().union(*sets[0], *([] if of_gold else sets[1])))
    has = np.array([[[label in row for label in labels] for row in rows] for rows in sets], float)
    return np.stack([*has, has[0] * has[1]], axis=-1)


def _f1(counts: Float[np.ndarray, "*sets 3"]) -> Float[np.ndarray, "*sets"]:
    """Returns F1 from the numbers of answers, of predictions and of right predictions; 0 if
    there are no answers and no predictions."""
    total = counts[..., 0] + counts[..., 1]
    return np.divide(2 * counts[..., 2], total, out=np.zeros(total.shape), where=total > 0)


def _macro_f1(sums: Float[np.ndarray, "sets K"]) -> Float[np.ndarray, " sets"]:
    by_label = sums.reshape(len(sums), sums.shape[1] // 3, 3)
    return _f1(by_label).sum(axis=1) / (by_label[..., 0] > 0).sum(axis=1).clip(1)


# F1 as in scikit-learn's f1_score with average="micro" and "macro", the latter over labels that
# occur in the answers; 0 if none does. Not named "macro_f1", which is for rows with one label each.
MICRO = Sums(lambda *texts: _counts(*texts).sum(axis=1), _f1)
MACRO = Sums(lambda *texts: _counts(*texts, of_gold=True).reshape(len(texts[0]), -1), _macro_f1)


def _is_one(sign: Any, place: str) -> bool:
    """Whether a cell says that a row has a label. Raises EmptyCellError for -1 and for an empty
    cell, and ValueError for any other text."""
    text = label_of(sign, place).lower()
    if text == "-1" or is_missing(text):
        raise EmptyCellError(f"{place} is {text}, which says nothing of the label")
    if text not in (*YES, *NO):
        raise ValueError(f"{place} must be 0 or 1, not {short(sign)}")
    return text in YES


class MultiLabel(PooledTask):
    """Rows of ``text``, maybe ``text_pair``, and ``labels``, which may be empty.

    The cell of the labels is a list, or a text in which they are separated by ``label_separator``;
    an empty cell has no labels. Or each label is a column of the data, with 1 in the rows that have
    the label and 0 in the others. With ``multi_hot``, a list has a 1 or a 0 for each label, and the
    labels are the positions in the list, from 0. Labels in ``no_label`` are left out.

    The probability of each label is predicted independently from one state of the text
    (``PooledTask``). The loss is the mean binary cross-entropy over texts and labels. Every label
    with a probability above ``threshold`` is predicted; there may be none.

    ``verbalisers`` are ``label=words``, as in classification.
    """

    target = "labels"
    gathered = ("labels",)
    metrics = (
        metric_of_sums("micro_f1", MICRO),
        metric_of_sums("macro_f1_of_labels", MACRO),
    )
    has_classes = has_text_form = True
    cell_settings = LABEL_SETTINGS | {
        "label_separator": CellSetting(str, ","),
        "multi_hot": CellSetting(bool, False),
    }
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
    def check(cls, max_tokens: int, **settings: Any) -> None:
        super().check(max_tokens, **settings)
        if not 0 < (threshold := settings["threshold"]) < 1:
            raise ValueError(f"threshold: must be between 0 and 1, not {threshold:g}")

    def read(self, column: str, value: Any, row: Row, place: str) -> Any:
        if column != "labels":
            return super().read(column, value, row, place)
        if value is None or value != value or value == []:
            return []
        if isinstance(value, str):
            separator, text, value = self.cells.label_separator, value.strip(), structure_of(value)
            # [joy, fear], <joy><fear> of Stack Overflow; but not <NA>
            if text[:1] + text[-1:] == "[]" or (text[:1] == "<" and separator == "><"):
                text = text[1:-1]
            if value is None:
                parts = text.split(None if separator == " " else separator)
                value = [part for part in parts if part.strip()]
        if isinstance(value, Mapping):
            if isinstance(value.get("choices"), list):  # as Label Studio writes several labels
                return self.read(column, value["choices"], row, place)
            return sorted(name for name, sign in value.items() if _is_one(sign, f"{place} {name}"))
        if not isinstance(value, list):
            raise ValueError(f"{place} must be a list of labels, not {short(value)}")
        if self.cells.multi_hot:
            return [str(i) for i, sign in enumerate(value) if _is_one(sign, place)]
        labels = [label_of(label, f"{place}[{i}]") for i, label in enumerate(value)]
        if {*labels} <= {"0", "1"} and len({*labels}) < len(labels):
            raise ValueError(
                f"{place} is {short(value)}; `multi_hot: true` reads 0 and 1 as the absence and "
                "the presence of the label of that position"
            )
        read = {label_in(label, place, self.cells) for label in labels}
        return sorted(label for label in read if label is not None)

    def without_labels(self, row: Json, labels: Collection[str]) -> Json:
        return row | {"labels": [label for label in row["labels"] if label not in labels]}

    def answer(self, row: Row) -> str:
        return written_labels(row["labels"])

    def repeated(self, part: str, row: Row) -> str:
        return written_labels([part])

    def shown(self, row: Row, prediction: str) -> str:
        return ", ".join(json.loads(prediction)) or NOTHING

    def predicted_columns(self, row: Row, prediction: str) -> Json:
        return {"labels": json.loads(prediction)}

    def words_of(self, labels: Sequence[str], settings: Settings) -> dict[str, str]:
        words = super().words_of(labels, settings)
        for label, text in words.items():
            if "," in text or plain_text(text) == NOTHING:
                raise ValueError(
                    f"verbalisers: as text the label {label!r} needs words without a comma, other "
                    f"than {NOTHING!r}"
                )
        return words

    def written(self, row: Row, form: TextForm) -> str:
        return (
            ", ".join(form.words[label] for label in form.words if label in row["labels"])
            or NOTHING
        )

    def meaning(self, row: Row, text: str, form: TextForm) -> str:
        """Ignores parts of a written text that are no label."""
        parts = map(plain_text, text.split(","))
        return written_labels([form.label_of[part] for part in parts if part in form.label_of])

    def longest_as_text(self, longest_class: int, row: Row | None = None) -> int:
        """Returns enough tokens for every label with a comma after it."""
        return 2 * longest_class * len(self.labels)

    def target_of(self, row: Row) -> np.ndarray:
        """Returns 1 for each label that the row has, else 0, [1 L]; IGNORE_INDEX if unknown. A
        label that train does not have cannot be predicted."""
        if "labels" not in row:
            return np.full((1, len(self.labels)), IGNORE_INDEX)
        return np.array([[int(label in row["labels"]) for label in self.labels]])

    def loss(self, model: ModelWithHead, batch: Batch) -> Losses:
        import torch.nn.functional as F

        from stages.models._heads import at_least_float32

        assert batch.labels is not None
        logits = at_least_float32(self.outputs(model, batch))
        is_known = (batch.labels != IGNORE_INDEX).to(logits.dtype)
        loss = F.binary_cross_entropy_with_logits(
            logits, batch.labels * is_known, weight=is_known, reduction="sum"
        )
        return {self.name: (1.0, loss)}

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Example]) -> list[Any]:
        predictions = []
        for row in self.outputs(model, batch).float().sigmoid().tolist():
            scores = dict(zip(self.labels, row, strict=True))
            chosen = [label for label, share in scores.items() if share > self.threshold]
            predictions.append(Predicted(written_labels(chosen), scores))
        return predictions
