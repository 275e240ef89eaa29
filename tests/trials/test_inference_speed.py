"""The speed of prediction, measured on texts that the model has not seen."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from stages.models._heads import ModelWithHead
from stages.text.batch import Batch
from stages.training.device import Device
from stages.trials.inference_speed import IN_BATCHES, TIMED, WARM_UP, Speed, measure_speed
from tests.small import with_stub

CPU = Device("cpu", "float32", compile=False, threads=1)
LABELS = ["a", "b"]


@dataclass(frozen=True)
class Given:
    """An example."""

    id: str
    tokens: np.ndarray
    window: int = 0
    num_cut: int = 0


class Sleeper:
    """A predictor that takes ``seconds`` for a batch and records the ids of its texts."""

    has_prefix = False

    def __init__(self, seconds: float, *, windows: int = 1) -> None:
        self.seconds, self.windows = seconds, windows
        self.batches: list[list[str]] = []

    def encode(self, rows: Any) -> list[Given]:
        return [Given(row["id"], np.ones(7), i) for row in rows for i in range(self.windows)]

    def collate(self, examples: list[Any], *, rngs: list[Any]) -> Batch:
        ids = torch.zeros(len(examples), 7, dtype=torch.long)
        return Batch(input_ids=ids, document_ids=torch.ones_like(ids), num_targets={})

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Any]) -> list[Any]:
        self.batches.append([example.id for example in examples])
        time.sleep(self.seconds)
        return [0 for _ in examples]

    def combine(self, row: Any, predictions: list[Any]) -> str:
        assert len(predictions) == self.windows
        return "a"


def speed(sleeper: Sleeper, num_rows: int) -> Speed:
    rows = [{"id": f"row {i}", "text": "a text"} for i in range(num_rows)]
    model = with_stub(nn.Identity(), nn.Identity())
    return measure_speed(sleeper, model, rows, sleeper.encode(rows), CPU)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measures all texts, however busy the machine is."""
    monkeypatch.setattr("stages.trials.inference_speed.LONGEST_S", 1000.0)


@pytest.mark.usefixtures("patient")
def test_speed_is_of_texts_alone_and_in_batches() -> None:
    """A prediction takes 5 ms, or longer on a busy machine."""
    sleeper = Sleeper(0.005)
    measured = speed(sleeper, 600)
    assert 0.005 <= measured.latency_s < 0.5
    assert [len(ids) for ids in sleeper.batches] == [1] * (WARM_UP + TIMED) + [64, 64]
    assert measured.texts_per_s <= IN_BATCHES / (2 * 0.005)
    assert measured.tokens_per_s == pytest.approx(7 * measured.texts_per_s)


@pytest.mark.parametrize("num_rows", [1, 2, 5, 50])
def test_speed_predicts_no_text_twice(num_rows: int) -> None:
    """Only a single text is predicted again."""
    sleeper = Sleeper(0.0, windows=2)
    measured = speed(sleeper, num_rows)
    assert measured.latency_s > 0 and measured.texts_per_s > 0
    predicted = [id for ids in sleeper.batches for id in ids]
    times = 2 * 2 if num_rows == 1 else 2
    assert set(map(predicted.count, predicted)) == {times}


@pytest.mark.slow
def test_speed_of_a_slow_model_is_measured_on_fewer_texts() -> None:
    sleeper = Sleeper(0.4)
    assert speed(sleeper, 60).latency_s >= 0.4
    assert WARM_UP < sum(len(ids) == 1 for ids in sleeper.batches) < TIMED
