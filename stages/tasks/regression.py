"""Regression: a number from a text or from a pair of texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.tasks._cells import Decimal, Row, read_number, written_number
from stages.tasks._metric import CORRELATION, Metric, Sums
from stages.tasks._pooled import PooledTask, Reading
from stages.tasks._task import CellSettings, Example
from stages.tasks._text_form import TextForm

if TYPE_CHECKING:
    from stages.tasks._task import Batch, Losses, ModelWithHead


Numbers = Float[np.ndarray, " n"]
SMALLEST_SHARE = 1e-12  # values with a smaller relative spread count as constant
LONGEST_NUMBER = 12  # most tokens of a number that is written as text


def _numbers(texts: Sequence[str]) -> Numbers:
    return np.array([float(text) for text in texts])


def _correlation(x: Numbers, y: Numbers) -> float:
    """Returns Pearson's correlation; 0 if the numbers of either side are constant."""
    # Squares of very small or very large values would underflow or overflow.
    x, y = (values / (np.abs(values).max() or 1.0) for values in (x, y))
    deviations = [values - values.mean() for values in (x, y)]
    norms = [float(np.linalg.norm(each)) for each in deviations]
    for norm, values in zip(norms, (x, y), strict=True):
        if norm <= SMALLEST_SHARE * float(np.linalg.norm(values)):
            return 0.0
    return float(np.clip(deviations[0] @ deviations[1] / (norms[0] * norms[1]), -1, 1))


def _moments(gold: Sequence[str], predicted: Sequence[str]) -> Float[np.ndarray, "n 6"]:
    """Returns 1, x, y, xx, yy and xy for each row; x and y are deviations from the mean."""
    x, y = (values - values.mean() for values in (_numbers(gold), _numbers(predicted)))
    return np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y], axis=-1)


def _of_moments(sums: Float[np.ndarray, "*sets 6"]) -> Float[np.ndarray, "*sets"]:
    num, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spread = [square - one * one / num for one, square in ((x, xx), (y, yy))]
    varies = (spread[0] > SMALLEST_SHARE * xx) & (spread[1] > SMALLEST_SHARE * yy)
    below = np.sqrt(np.where(varies, spread[0] * spread[1], 1))
    return np.where(varies, (xy - x * y / num) / below, 0.0)


def _ranks(texts: Sequence[str]) -> Numbers:
    from scipy.stats import rankdata  # the import takes most of a second

    return rankdata(_numbers(texts))


PEARSON = Metric(
    "pearson",
    lambda gold, predicted: _correlation(_numbers(gold), _numbers(predicted)),
    CORRELATION,
    Sums(_moments, _of_moments),
)
SPEARMAN = Metric(
    "spearman",
    lambda gold, predicted: _correlation(_ranks(gold), _ranks(predicted)),
    CORRELATION,
)


class _AsText(TextForm):
    """Writes the number rounded to a multiple of ``text_step``, as T5 does for STS-B (Raffel et al.
    2020, section 2.4: 0.2). A text that is no number is read as the mean of the train rows, which
    says nothing about the row."""

    def written(self, row: Row) -> str:
        step = float(self.settings.get("text_step", 0.2))
        return str(round(round(row["target"] / step) * step, 6) + 0.0)  # no -0.0

    def prediction(self, row: Row, text: str) -> str:
        try:
            number = float(text.replace(" ", ""))
        except ValueError:
            number = math.nan
        mean = float(self.record.get("target_mean", 0.0))
        return written_number(number if math.isfinite(number) else mean)


@dataclass(frozen=True, kw_only=True)
class _Cells(CellSettings):
    decimal: Decimal = "point"


class Regression(PooledTask):
    """Rows of ``text``, maybe ``text_pair``, and ``target``, a number with a point or comma.

    The number is predicted from one state of the text (``PooledTask``; BERT on STS-B; Devlin et al.
    2019, appendix B.1). The loss is the mean squared error of the target, standardised by the mean
    and the standard deviation of the train rows; predictions are in the target's units.

    As text a target is a multiple of ``text_step`` (T5; Raffel et al. 2020, section 2.4).
    """

    target = "target"
    metrics = (PEARSON, SPEARMAN)
    form = _AsText
    cells = _Cells()
    schema = Reading

    def __init__(
        self,
        *from_code: Any,
        text_step: float = 0.2,
        metric: Literal["pearson", "spearman"] = "pearson",
    ) -> None:
        super().__init__(*from_code)
        self.mean, self.std = 0.0, 1.0

    def read(self, column: str, value: Any, row: Row, place: str) -> Any:
        text = super().read(column, value, row, place)
        return text if column != "target" else read_number(text, place, self.cells.decimal)

    def facts(self, rows: Sequence[Row]) -> Json:
        """Returns the mean and the standard deviation of the target.

        Raises ValueError if all rows have the same target.
        """
        values = np.array([row["target"] for row in rows])
        if (values == values[0]).all():
            raise ValueError(f"target: all examples of train have {written_number(values[0])}")
        return {"target_mean": float(values.mean()), "target_std": float(values.std())}

    def take_facts(self, record: Settings) -> None:
        self.mean, self.std = record["target_mean"], record["target_std"]

    def answer(self, row: Row) -> str:
        return repr(float(row["target"]))

    def shown(self, row: Row, prediction: str) -> str:
        return f"{float(prediction):.3g}"

    def predicted_columns(self, row: Row, prediction: str) -> Json:
        return {"target": float(prediction)}

    def longest_as_text(self, longest_class: int) -> int:
        return LONGEST_NUMBER

    def target_of(self, row: Row) -> np.ndarray:
        value = (row["target"] - self.mean) / self.std if "target" in row else np.nan
        return np.array([value], dtype=np.float32)

    def targets(self, examples: list[Example]) -> Json:
        import torch

        values = torch.from_numpy(np.concatenate([example.labels for example in examples]))
        return {"labels": values, "num_targets": {self.name: int((~values.isnan()).sum())}}

    def loss(self, model: ModelWithHead, batch: Batch) -> Losses:
        assert batch.labels is not None
        errors = self.numbers(model, batch) - batch.labels.nan_to_num()
        return {self.name: (1.0, (errors * ~batch.labels.isnan()).square().sum())}

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Example]) -> list[str]:
        values = self.numbers(model, batch).double() * self.std + self.mean
        return [written_number(value) for value in values.tolist()]
