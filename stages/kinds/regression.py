"""Texts, or pairs of texts, with one number each (STS-B, SICK relatedness)."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.kinds._cells import short
from stages.kinds._kind import Kind, Row
from stages.kinds._metric import Metric
from stages.kinds._text_form import TextForm

SMALLEST_SHARE = 1e-12  # of the values' scale: what rounding leaves of a constant's deviation


class _AsText(TextForm):
    """The number rounded to a multiple of ``text_step``, as T5 writes STS-B (Raffel et al. 2020,
    section 2.4: 0.2). A text that is no number is the mean of the train rows, which says nothing
    about the row."""

    def __init__(self, columns: Sequence[str], key: str, record: Settings) -> None:
        super().__init__(columns, key, record)
        self.step = float(self.settings.get("text_step", 0.2))
        self.mean = float(record.get("target_mean", 0.0))

    def answer(self, row: Row) -> str | None:
        if "target" not in row:
            return None
        decimals = max(-math.floor(math.log10(self.step)), 0)
        return f"{round(row['target'] / self.step) * self.step:.{decimals}f}"

    def prediction(self, row: Row, text: str) -> str:
        try:
            found = float(text.replace(" ", ""))
        except ValueError:
            found = math.nan
        return written(found if math.isfinite(found) else self.mean)


def written(value: float) -> str:
    """A predicted number as text: seven digits are what float32 has."""
    return f"{value:.7g}"


def pearson(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Pearson's correlation over all rows. A constant has none (NaN in SciPy): it counts as 0,
    since it says nothing about the rows."""
    return correlation(_numbers(gold), _numbers(predicted))


def spearman(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Pearson's correlation of the ranks, which equal values share; 0 for a constant."""
    return correlation(ranks(_numbers(gold)), ranks(_numbers(predicted)))


def correlation(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> float:
    """Pearson's; 0 if one of the two is constant."""
    deviations = [values - values.mean() for values in (x, y)]
    norms = [float(np.linalg.norm(each)) for each in deviations]
    for norm, values in zip(norms, (x, y), strict=True):
        if norm <= SMALLEST_SHARE * float(np.linalg.norm(values)):
            return 0.0
    return float(np.clip(deviations[0] @ deviations[1] / (norms[0] * norms[1]), -1, 1))


def ranks(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Ranks from 1; equal values share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def _numbers(texts: Sequence[str]) -> Float[np.ndarray, " n"]:
    return np.array([float(text) for text in texts])


class RatedText(Kind):
    """``text``, perhaps ``text_pair``, and ``target``, a number."""

    inputs = ("text",)
    optional = ("text_pair",)
    target = "target"
    metrics = (Metric("pearson", pearson), Metric("spearman", spearman))
    form = _AsText

    def read(self, column: str, value: Any, row: Row, place: str) -> Any:
        found = super().read(column, value, row, place)
        return found if column != "target" else _number(found, place)

    def facts(self, rows: Sequence[Row]) -> Json:
        """The mean and the standard deviation of the target.

        Raises ValueError if all rows have the same.
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
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"{place} must be a finite number, not {short(text)}")
    return found
