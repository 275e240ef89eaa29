"""Regression: a number from a text or from a pair of texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.tasks._cells import Row
from stages.tasks._correlation import PEARSON, SPEARMAN, pearson, spearman
from stages.tasks._kind import CellSettings
from stages.tasks._metric import Metric
from stages.tasks._numbers import Decimal, read_number, written_number
from stages.tasks._pooled import PooledTask, Reading
from stages.tasks._task import Example
from stages.tasks._text_form import TextForm

if TYPE_CHECKING:
    from torch import Tensor

    from stages.models._heads import ModelWithHead
    from stages.text.batch import Batch


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
        return written_number(number if math.isfinite(number) else self.mean)


LONGEST_NUMBER = 12  # most tokens of a number that is written as text


@dataclass(frozen=True, kw_only=True)
class _CellSettings(CellSettings):
    decimal: Decimal = "point"


class Regression(PooledTask):
    """Rows of ``text``, maybe ``text_pair``, and ``target``, a number with a point or comma.

    Reads ``<bos> text <eos>`` or ``<bos> text <eos> pair <eos>``, or the tokenizer's own special
    tokens, and predicts a number from one state (BERT on STS-B; Devlin et al. 2019, appendix B.1).

    The loss is the mean squared error of the target, standardised by the mean and the standard
    deviation of the train rows; predictions are in the target's units.

    As text a target is a multiple of ``text_step`` (T5; Raffel et al. 2020, section 2.4).
    """

    inputs = ("text",)
    optional = ("text_pair",)
    target = "target"
    metrics = (
        Metric("pearson", pearson, sums=PEARSON),
        Metric("spearman", spearman, sums=SPEARMAN),
    )
    form = _AsText
    cells = _CellSettings()
    schema = Reading

    def __init__(
        self,
        *from_code: Any,
        text_step: float = 0.2,
        metric: Literal["pearson", "spearman"] = "pearson",
    ) -> None:
        super().__init__(*from_code)
        self.mean, self.std = 0.0, 1.0

    @classmethod
    def check(  # type: ignore[override]
        cls, max_tokens: int, *, text_step: float, **others: object
    ) -> None:
        if text_step <= 0:
            raise ValueError(f"text_step must be above 0, not {text_step:g}")

    def take_facts(self, record: Settings) -> None:
        self.mean, self.std = record["target_mean"], record["target_std"]

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

    def target_of(self, row: Row) -> np.ndarray:
        value = (row["target"] - self.mean) / self.std if "target" in row else np.nan
        return np.array([value], dtype=np.float32)

    def targets(self, examples: list[Example]) -> Json:
        import torch

        values = torch.from_numpy(np.concatenate([example.labels for example in examples]))
        return {"values": values, "num_targets": {"regression": int((~values.isnan()).sum())}}

    def loss(self, model: ModelWithHead, batch: Batch) -> dict[str, tuple[float, Tensor]]:
        assert batch.values is not None
        errors = self.outputs(model, batch) - batch.values.nan_to_num()
        return {"regression": (1.0, (errors * ~batch.values.isnan()).square().sum())}

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Example]) -> list[str]:
        values = self.outputs(model, batch).double() * self.std + self.mean
        return [written_number(value) for value in values.tolist()]

    def longest_as_text(self, longest_class: int) -> int:
        return LONGEST_NUMBER
