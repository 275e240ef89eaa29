"""Regression: a number from a text or from a pair of texts."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from stages.core.artifacts import Json
from stages.tasks._cells import Decimal, Row, read_number, written_number
from stages.tasks._metric import CORRELATION, Metric, Sums, metric_of_sums
from stages.tasks._pooled import PooledTask, Reading
from stages.tasks._task import Batch, CellSetting, Example, Losses, ModelWithHead
from stages.tasks._text_form import TextForm

SMALLEST_SHARE = 1e-12  # values with a smaller relative spread count as constant
LONGEST_NUMBER = 12  # most tokens of a number that is written as text


def _moments(gold: Sequence[str], predicted: Sequence[str]) -> Float[np.ndarray, "n 6"]:
    """Returns 1, x, y, xx, yy and xy for each row; x and y are deviations from the mean, scaled
    since squares of very small or very large numbers would underflow or overflow."""
    numbers = (np.array(values, dtype=float) for values in (gold, predicted))
    scaled = (values / (np.abs(values).max() or 1.0) for values in numbers)
    x, y = (values - values.mean() for values in scaled)
    return np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y], axis=-1)


def _of_moments(sums: Float[np.ndarray, "*sets 6"]) -> Float[np.ndarray, "*sets"]:
    """Returns Pearson's correlation; 0 if the numbers of either side are constant."""
    num, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spread = [square - one * one / num for one, square in ((x, xx), (y, yy))]
    varies = (spread[0] > SMALLEST_SHARE * xx) & (spread[1] > SMALLEST_SHARE * yy)
    below = np.sqrt(np.where(varies, spread[0] * spread[1], 1))
    return np.where(varies, (xy - x * y / num) / below, 0.0).clip(-1, 1)


PEARSON = metric_of_sums("pearson", Sums(_moments, _of_moments), CORRELATION)


def _spearman(gold: Sequence[str], predicted: Sequence[str]) -> float:
    from scipy.stats import rankdata  # the import takes most of a second

    ranks = [rankdata(np.array(texts, dtype=float)) for texts in (gold, predicted)]
    return PEARSON.value(*(list(map(str, each)) for each in ranks))


SPEARMAN = Metric("spearman", _spearman, CORRELATION)


class Regression(PooledTask):
    """Rows of ``text``, maybe ``text_pair``, and ``target``, a number with a point or comma.

    The number is predicted from one state of the text (``PooledTask``; BERT on STS-B; Devlin et al.
    2019, appendix B.1). The loss is the mean squared error of the target, standardised by the mean
    and the standard deviation of the train rows; predictions are in the target's units.

    As text a target is rounded to a multiple of ``text_step`` (T5 on STS-B: 0.2; Raffel et al.
    2020, section 2.4).
    """

    target = "target"
    metrics = (PEARSON, SPEARMAN)
    has_text_form = True
    cell_settings = {"decimal": CellSetting(Decimal, "point")}
    record = {"target_mean": 0.0, "target_std": 1.0}  # until train is known
    schema = Reading

    def __init__(
        self,
        *from_code: Any,
        text_step: float = 0.2,
        metric: Literal["pearson", "spearman"] = "pearson",
    ) -> None:
        super().__init__(*from_code)

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

    def answer(self, row: Row) -> str:
        return repr(float(row["target"]))

    def shown(self, row: Row, prediction: str) -> str:
        return f"{float(prediction):.3g}"

    def predicted_columns(self, row: Row, prediction: str) -> Json:
        return {"target": float(prediction)}

    def written(self, row: Row, form: TextForm) -> str:
        step = float(form.settings.get("text_step", 0.2))
        return str(round(round(row["target"] / step) * step, 6) + 0.0)  # no -0.0

    def meaning(self, row: Row, text: str, form: TextForm) -> str:
        """Reads a text that is no number as the mean of train, which says nothing of the row."""
        try:
            number = float(text.replace(" ", ""))
        except ValueError:
            number = math.nan
        mean = float(form.record.get("target_mean", 0.0))
        return written_number(number if math.isfinite(number) else mean)

    def longest_as_text(self, longest_class: int, row: Row | None = None) -> int:
        return LONGEST_NUMBER

    def target_of(self, row: Row) -> np.ndarray:
        mean, std = self.record["target_mean"], self.record["target_std"]
        value = (row["target"] - mean) / std if "target" in row else np.nan
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
        mean, std = self.record["target_mean"], self.record["target_std"]
        values = self.numbers(model, batch).double() * std + mean
        return [written_number(value) for value in values.tolist()]
