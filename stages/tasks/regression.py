"""Regression: a number from a text or from a pair of texts."""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.kinds._cells import Row
from stages.kinds.regression import RatedText, written
from stages.models._heads import ModelWithHead
from stages.tasks._pooled import PooledTask, Reading
from stages.tasks._task import Example
from stages.text.batch import Batch

LONGEST_NUMBER = 12  # most tokens of a number that is written as text


class Regression(PooledTask):
    """Reads ``<bos> text <eos>`` or ``<bos> text <eos> pair <eos>``, or the tokenizer's own special
    tokens, and predicts a number from one state (BERT on STS-B; Devlin et al. 2019, appendix B.1).

    The loss is the mean squared error of the target, standardised by the mean and the standard
    deviation of the train rows; predictions are in the target's units.

    As text a target is a multiple of ``text_step`` (T5; Raffel et al. 2020, section 2.4).
    """

    kind = RatedText()
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

    def target_of(self, row: Row) -> np.ndarray:
        value = (row["target"] - self.mean) / self.std if "target" in row else np.nan
        return np.array([value], dtype=np.float32)

    def targets(self, examples: list[Example]) -> Json:
        values = torch.from_numpy(np.concatenate([example.labels for example in examples]))
        return {"values": values, "num_targets": {"regression": int((~values.isnan()).sum())}}

    def loss(self, model: ModelWithHead, batch: Batch) -> dict[str, tuple[float, Tensor]]:
        assert batch.values is not None
        errors = self.outputs(model, batch) - batch.values.nan_to_num()
        return {"regression": (1.0, (errors * ~batch.values.isnan()).square().sum())}

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Example]) -> list[str]:
        values = self.outputs(model, batch).double() * self.std + self.mean
        return [written(value) for value in values.tolist()]

    def longest_as_text(self, longest_class: int) -> int:
        return LONGEST_NUMBER
