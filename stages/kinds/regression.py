"""Texts, or pairs of texts, with one number each (STS-B, SICK relatedness)."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.kinds._cells import short
from stages.kinds._correlation import PEARSON, SPEARMAN, pearson, spearman
from stages.kinds._kind import Kind, Row
from stages.kinds._metric import Metric
from stages.kinds._text_form import TextForm


class _AsText(TextForm):
    """The number rounded to a multiple of ``text_step``, as T5 writes STS-B (Raffel et al. 2020,
    section 2.4: 0.2). A text that is no number counts as the mean of the train rows, which says
    nothing about the row."""

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
    """``text``, perhaps ``text_pair``, and ``target``, a number."""

    inputs = ("text",)
    optional = ("text_pair",)
    target = "target"
    metrics = (
        Metric("pearson", pearson, sums=PEARSON),
        Metric("spearman", spearman, sums=SPEARMAN),
    )
    form = _AsText

    def read(self, column: str, value: Any, row: Row, place: str) -> Any:
        text = super().read(column, value, row, place)
        return text if column != "target" else _number(text, place)

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


def _number(text: str, place: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{place} must be a finite number, not {short(text)}")
    return number
