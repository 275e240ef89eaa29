"""Multi-label classification of a text or of a pair of texts."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.tasks._cells import EmptyCellError, Row, short, structure_of
from stages.tasks._kind import CellSettings
from stages.tasks._labels import (
    ASK,
    LabelCase,
    NoLabel,
    is_missing,
    label_of,
    read_label,
    written_labels,
)
from stages.tasks._metric import Metric, Sums
from stages.tasks._plain_text import plain_text
from stages.tasks._pooled import PooledTask, Reading
from stages.tasks._task import Example, Predicted
from stages.tasks._text_form import TextForm, label_words, verbalised
from stages.text.ignored import IGNORE_INDEX

if TYPE_CHECKING:
    from torch import Tensor

    from stages.models._heads import ModelWithHead
    from stages.text.batch import Batch

NOTHING = "none"  # the text for no label


def _is_one(sign: Any, place: str) -> bool:
    """Whether a cell says that a row has a label.

    Raises EmptyCellError for -1 and for an empty cell, and ValueError for any other text.
    """
    text = label_of(sign, place).lower()
    if text in ("0", "1", "true", "false", "t", "f", "yes", "no", "y", "n"):
        return text in ("1", "true", "t", "yes", "y")
    if text == "-1" or is_missing(text):
        raise EmptyCellError(f"{place} is {text}, which says nothing of the label")
    raise ValueError(f"{place} must be 0 or 1, not {short(sign)}")


class _AsText(TextForm):
    """Writes the labels' words in the order of the labels, separated by commas, or ``NOTHING``.
    Parts of a written text that are no label are ignored."""

    def words_of(self, labels: Sequence[str]) -> dict[str, str]:
        words = label_words(labels, self.settings.get("verbalisers", ()))
        for label, text in words.items():
            if "," in text or plain_text(text) == NOTHING:
                raise ValueError(
                    f"verbalisers: as text the label {label!r} needs words without a comma, other "
                    f"than {NOTHING!r}"
                )
        return words

    def answer(self, row: Row) -> str | None:
        if "labels" not in row:
            return None
        words = [text for label, text in self.words.items() if label in row["labels"]]
        return ", ".join(words) or NOTHING

    def prediction(self, row: Row, text: str) -> str:
        label_of = {plain_text(words): label for label, words in self.words.items()}
        parts = map(plain_text, text.split(","))
        return written_labels([label_of[part] for part in parts if part in label_of])


def _counts(gold: Sequence[str], predicted: Sequence[str]) -> Float[np.ndarray, "n L 3"]:
    """Returns three numbers (1 or 0) for each row and label: whether the label is an answer, is
    predicted, and is both. Labels in ``gold`` come before those only in ``predicted``."""
    answers, predictions = ([json.loads(text) for text in texts] for texts in (gold, predicted))
    labels = sorted({label for row in answers for label in row})
    labels += sorted({label for row in predictions for label in row}.difference(labels))
    index = {label: i for i, label in enumerate(labels)}
    counts = np.zeros((len(gold), len(labels), 3))
    for column, rows in enumerate((answers, predictions)):
        for i, row in enumerate(rows):
            counts[i, [index[label] for label in row], column] = 1
    counts[..., 2] = counts[..., 0] * counts[..., 1]
    return counts


def _f1(counts: Float[np.ndarray, "*sets 3"]) -> Float[np.ndarray, "*sets"]:
    """Returns F1 from the numbers of answers, of predictions and of right predictions; 0 if
    there are no answers and no predictions."""
    total = counts[..., 0] + counts[..., 1]
    return np.divide(2 * counts[..., 2], total, out=np.zeros(total.shape), where=total > 0)


def _macro_counts(gold: Sequence[str], predicted: Sequence[str]) -> Float[np.ndarray, "n K"]:
    """Returns the counts of the labels that are an answer of some row, so that the metric is the
    mean over the same labels for every run."""
    counts = _counts(gold, predicted)
    return counts[:, counts[..., 0].any(axis=0)].reshape(len(gold), -1)


def _macro_of_sums(sums: Float[np.ndarray, "sets K"]) -> Float[np.ndarray, " sets"]:
    by_label = sums.reshape(len(sums), -1, 3)
    return _f1(by_label).sum(axis=1) / (by_label[..., 0] > 0).sum(axis=1)


def _value(sums: Sums, gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Returns the metric of the whole set, 0 if no row has a label (as scikit-learn)."""
    total = sums.counts(gold, predicted).sum(axis=0, keepdims=True)
    return float(sums.value(total)[0]) if total[..., ::3].any() else 0.0


# F1 as in scikit-learn's f1_score with average="micro" and "macro", the latter over labels that
# occur in the answers. Not named "macro_f1", which is for rows with one label each.
MICRO = Sums(lambda gold, predicted: _counts(gold, predicted).sum(axis=1), _f1)
MACRO = Sums(_macro_counts, _macro_of_sums)


@dataclass(frozen=True, kw_only=True)
class _CellSettings(CellSettings):
    label_separator: str = ","
    multi_hot: bool = False
    no_label: NoLabel = ASK
    label_case: LabelCase = ASK


class MultiLabel(PooledTask):
    """Rows of ``text``, maybe ``text_pair``, and ``labels``, which may be empty.

    The cell of the labels is a list, or a text in which they are separated by ``label_separator``,
    as in "sad,angry"; an empty cell has no labels. Or each label is a column of the data, with 1 in
    the rows that have the label and 0 in the others. With ``multi_hot``, a list has a 1 or a 0 for
    each label, and the labels are the positions in the list, from 0.

    Labels that are in ``no_label`` are left out. ``label_case`` says whether labels that differ in
    case alone are one.

    Reads ``<bos> text <eos>`` or ``<bos> text <eos> pair <eos>``, or the tokenizer's own special
    tokens, and predicts the probability of each label independently from one state (transformers'
    ``multi_label_classification``).

    The loss is the mean binary cross-entropy over texts and labels. Every label with a probability
    above ``threshold`` is predicted; there may be none.

    ``verbalisers`` are ``label=words``, as in classification. In text output, the words of
    the labels are joined by commas.
    """

    inputs = ("text",)
    optional = ("text_pair",)
    target = "labels"
    gathered = ("labels",)
    metrics = (
        Metric("micro_f1", partial(_value, MICRO), sums=MICRO),
        Metric("macro_f1_of_labels", partial(_value, MACRO), sums=MACRO),
    )
    has_classes = True
    form = _AsText
    cells = _CellSettings()
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

    def read(self, column: str, value: Any, row: Row, place: str) -> Any:
        if column != "labels":
            return super().read(column, value, row, place)
        if value is None or value != value or value == []:
            return []
        if isinstance(value, str):
            inner = value.strip()
            # [joy, fear], {joy,fear} of Postgres, <joy><fear> of Stack Overflow; but not <NA>
            brackets = {"[]", "{}", "<>"} if self.cells.label_separator == "><" else {"[]", "{}"}
            if inner[:1] + inner[-1:] in brackets:
                inner = inner[1:-1]
            separator = None if self.cells.label_separator == " " else self.cells.label_separator
            parts = [part for part in inner.split(separator) if part.strip()]
            structure = structure_of(value)
            value = parts if structure is None else structure
        if isinstance(value, Mapping) and isinstance(value.get("choices"), list):
            value = value["choices"]  # as Label Studio writes several labels
        if isinstance(value, Mapping):
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
        read = (
            read_label(label, place, self.cells.no_label, self.cells.label_case) for label in labels
        )
        return sorted({label for label in read if label is not None})

    def check_labels(self, labels: list[str], settings: Settings) -> None:
        if verbalisers := settings.get("verbalisers"):
            label_words(labels, verbalisers)

    def without_labels(self, row: Json, labels: Collection[str]) -> Json:
        return row | {"labels": [label for label in row["labels"] if label not in labels]}

    def labels_of(self, row: Row) -> list[str]:
        return row["labels"]

    def answer(self, row: Row) -> str:
        return written_labels(row["labels"])

    def answer_parts(self, row: Row) -> list[str]:
        return row["labels"]

    def repeated(self, part: str, row: Row) -> str:
        return written_labels([part])

    def shown(self, row: Row, prediction: str) -> str:
        return ", ".join(json.loads(prediction)) or NOTHING

    def predicted_columns(self, row: Row, prediction: str) -> Json:
        return {"labels": json.loads(prediction)}

    def target_of(self, row: Row) -> np.ndarray:
        """Returns 1 for each label that the row has, else 0, [L]; IGNORE_INDEX if unknown."""
        if "labels" not in row:
            return np.full(len(self.labels), IGNORE_INDEX)
        # A label that train does not have cannot be predicted.
        has = [self.index[label] for label in row["labels"] if label in self.index]
        return np.isin(np.arange(len(self.labels)), has).astype(np.int64)

    def targets(self, examples: list[Example]) -> Json:
        import torch

        labels = torch.from_numpy(np.stack([example.labels for example in examples]))
        return {
            "labels": labels,
            "num_targets": {"multi_label": int((labels != IGNORE_INDEX).sum())},
        }

    def loss(self, model: ModelWithHead, batch: Batch) -> dict[str, tuple[float, Tensor]]:
        import torch.nn.functional as F

        from stages.models._heads import at_least_float32

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
            predictions.append(Predicted(written_labels(chosen), scores))
        return predictions

    def longest_as_text(self, longest_class: int) -> int:
        """Returns enough tokens for every label with a comma after it."""
        return 2 * longest_class * len(self.labels)
