"""Texts, or pairs of texts, with one number each (STS-B, SICK relatedness)."""

import math
import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.kinds._cells import EmptyCellError, short
from stages.kinds._correlation import PEARSON, SPEARMAN, pearson, spearman
from stages.kinds._kind import Kind, Row
from stages.kinds._labels import is_missing
from stages.kinds._metric import Metric
from stages.kinds._text_form import TextForm

Decimal = Literal["point", "comma"]
# Signs for a missing number; some of them may be labels in columns of labels.
NO_NUMBERS = {"na", "n.a.", "n/a", "-nan", "-nan(ind)", "1.#qnan", "1.#ind", "missing", "*"}


class _AsText(TextForm):
    """Writes the number rounded to a multiple of ``text_step``, as T5 does for STS-B (Raffel et al.
    2020, section 2.4: 0.2). A text that is no number is read as the mean of the train rows, which
    says nothing about the row."""

    def __init__(self, columns: Sequence[str], key: str, record: Settings) -> None:
        super().__init__(columns, key, record)
        self.step = float(self.settings.get("text_step", 0.2))
        self.mean = float(record.get("target_mean", 0.0))

    def answer(self, row: Row) -> str | None:
        if "target" not in row:
            return None
        return str(round(round(row["target"] / self.step) * self.step, 6) + 0.0)  # no -0.0

    def prediction(self, row: Row, text: str) -> str:
        try:
            number = float(text.replace(" ", ""))
        except ValueError:
            number = math.nan
        return written(number if math.isfinite(number) else self.mean)


def written(value: float) -> str:
    """Returns a predicted number as text, with the seven digits of float32."""
    return f"{value:.7g}"


class RatedText(Kind):
    """Rows of ``text``, maybe ``text_pair``, and ``target``, a number with a point or comma."""

    inputs = ("text",)
    optional = ("text_pair",)
    target = "target"
    metrics = (
        Metric("pearson", pearson, sums=PEARSON),
        Metric("spearman", spearman, sums=SPEARMAN),
    )
    form = _AsText

    def __init__(self, *, decimal: Decimal = "point") -> None:
        self.decimal: Decimal = decimal

    def read(self, column: str, value: Any, row: Row, place: str) -> Any:
        text = super().read(column, value, row, place)
        return text if column != "target" else _number(text, place, self.decimal)

    def facts(self, rows: Sequence[Row]) -> Json:
        """Returns the mean and the standard deviation of the target.

        Raises ValueError if all rows have the same target.
        """
        values = np.array([row["target"] for row in rows])
        if (values == values[0]).all():
            raise ValueError(f"target: all examples of train have {written(values[0])}")
        return {"target_mean": float(values.mean()), "target_std": float(values.std())}

    def answer(self, row: Row) -> str:
        return repr(float(row["target"]))

    def shown(self, row: Row, prediction: str) -> str:
        return f"{float(prediction):.3g}"

    def predicted_columns(self, row: Row, prediction: str) -> Json:
        return {"target": float(prediction)}


def number_of(text: str, decimal: Decimal = "point") -> float:
    """Returns the number that a text spells, NaN if it spells none. With a decimal comma, points
    between groups of three digits are ignored."""
    text = _plain(text)
    if decimal == "comma":
        groups = re.fullmatch(r"([+-]?\d{1,3}(?:\.\d{3})+)(,\d+)?", text)
        text = (text.replace(".", "") if groups else text).replace(",", ".")
    try:
        return float(text)
    except ValueError:
        return math.nan


def _plain(text: str) -> str:
    """Returns a number's text without separators of thousands, where they can be nothing else, as
    in 1 234,5, 1'234.5 and 1,234.5."""
    text = re.sub(
        r"(?<=\d)[ \u00a0\u202f'\u2019](?=\d{3}(?!\d))", "", text.strip().replace("\u2212", "-")
    )
    return text.replace(",", "") if re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+\.\d+", text) else text


def decimal_of(texts: Sequence[str]) -> tuple[Decimal, bool]:
    """Returns the decimal sign of numbers, and whether it is certain: the sign in 1,234 or 1.234
    may separate thousands, and a few cells such as 1,5 among whole numbers may be lists."""
    texts = [_plain(text) for text in texts]
    commas = [text for text in texts if re.fullmatch(r"[+-]?[\d.]*,\d+(e[+-]?\d+)?", text.lower())]
    if not commas:
        groups = r"[+-]?[1-9]\d{0,2}\.\d{3}"
        return "point", not texts or not all(re.fullmatch(groups, text) for text in texts)
    lengths = {len(text.partition(",")[2]) for text in commas}
    return "comma", lengths != {3} and (len(commas) == len(texts) or lengths != {1})


def _number(text: str, place: str, decimal: Decimal) -> float:
    number = number_of(text, decimal)
    if math.isfinite(number):
        return number
    if (
        is_missing(text.strip())
        or text.strip().lower() in NO_NUMBERS
        or re.fullmatch(r"[+-]?inf(inity)?", text.strip().lower())
    ):
        raise EmptyCellError(f"{place} must be a finite number, not {short(text)}")
    way = "is it a decimal comma? `decimal: comma`" if "," in text else "leave the cell empty"
    raise ValueError(f"{place} must be a finite number, not {short(text)} ({way})")
