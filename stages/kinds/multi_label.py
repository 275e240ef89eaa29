"""Texts, or pairs of texts, with any number of labels each (topics, toxicity, emotions)."""

import json
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.kinds._cells import EmptyCellError, short, structure_of
from stages.kinds._kind import Kind, Row
from stages.kinds._labels import ASK, LabelCase, NoLabel, is_missing, label_of, read_label
from stages.kinds._metric import Metric, Sums
from stages.kinds._plain_text import plain_text
from stages.kinds._text_form import TextForm, label_words

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


def written(labels: Sequence[str]) -> str:
    """Returns a set of labels as text, always in the same order."""
    return json.dumps(sorted({*labels}), ensure_ascii=False)


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
        return written([label_of[part] for part in parts if part in label_of])


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


class TextWithLabels(Kind):
    """Rows of ``text``, maybe ``text_pair``, and ``labels``, which may be empty.

    The cell of the labels is a list, or a text in which they are separated by ``label_separator``,
    as in "sad,angry"; an empty cell has no labels. Or each label is a column of the data, with 1 in
    the rows that have the label and 0 in the others. With ``multi_hot``, a list has a 1 or a 0 for
    each label, and the labels are the positions in the list, from 0.

    Labels that are in ``no_label`` are left out. ``label_case`` says whether labels that differ in
    case alone are one.
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

    def __init__(
        self,
        *,
        label_separator: str = ",",
        multi_hot: bool = False,
        no_label: NoLabel = ASK,
        label_case: LabelCase = ASK,
    ) -> None:
        self.label_separator, self.multi_hot = label_separator, multi_hot
        self.no_label: NoLabel = no_label
        self.label_case: LabelCase = label_case

    def read(self, column: str, value: Any, row: Row, place: str) -> Any:
        if column != "labels":
            return super().read(column, value, row, place)
        if value is None or value != value or value == []:
            return []
        if isinstance(value, str):
            inner = value.strip()
            # [joy, fear], {joy,fear} of Postgres, <joy><fear> of Stack Overflow; but not <NA>
            brackets = {"[]", "{}", "<>"} if self.label_separator == "><" else {"[]", "{}"}
            if inner[:1] + inner[-1:] in brackets:
                inner = inner[1:-1]
            separator = None if self.label_separator == " " else self.label_separator
            parts = [part for part in inner.split(separator) if part.strip()]
            structure = structure_of(value)
            value = parts if structure is None else structure
        if isinstance(value, Mapping) and isinstance(value.get("choices"), list):
            value = value["choices"]  # as Label Studio writes several labels
        if isinstance(value, Mapping):
            return sorted(name for name, sign in value.items() if _is_one(sign, f"{place} {name}"))
        if not isinstance(value, list):
            raise ValueError(f"{place} must be a list of labels, not {short(value)}")
        if self.multi_hot:
            return [str(i) for i, sign in enumerate(value) if _is_one(sign, place)]
        labels = [label_of(label, f"{place}[{i}]") for i, label in enumerate(value)]
        if {*labels} <= {"0", "1"} and len({*labels}) < len(labels):
            raise ValueError(
                f"{place} is {short(value)}; `multi_hot: true` reads 0 and 1 as the absence and "
                "the presence of the label of that position"
            )
        read = (read_label(label, place, self.no_label, self.label_case) for label in labels)
        return sorted({label for label in read if label is not None})

    def check_labels(self, labels: list[str], settings: Settings) -> None:
        if verbalisers := settings.get("verbalisers"):
            label_words(labels, verbalisers)

    def without_labels(self, row: Json, labels: Collection[str]) -> Json:
        return row | {"labels": [label for label in row["labels"] if label not in labels]}

    def labels_of(self, row: Row) -> list[str]:
        return row["labels"]

    def answer(self, row: Row) -> str:
        return written(row["labels"])

    def answer_parts(self, row: Row) -> list[str]:
        return row["labels"]

    def repeated(self, part: str, row: Row) -> str:
        return written([part])

    def shown(self, row: Row, prediction: str) -> str:
        return ", ".join(json.loads(prediction)) or NOTHING

    def predicted_columns(self, row: Row, prediction: str) -> Json:
        return {"labels": json.loads(prediction)}
