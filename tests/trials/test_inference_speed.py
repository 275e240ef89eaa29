"""How fast a model predicts: the whole of it, on texts that nobody has seen."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from stages.core.seeding import torch_stream
from stages.methods.linear_probe import LinearProbe
from stages.models._heads import ModelWithHead
from stages.tasks.classification import Classification
from stages.text.batch import Batch
from stages.training.device import Device
from stages.trials.inference_speed import IN_BATCHES, TIMED, WARM_UP, Speed, measure_speed
from tests.small import small_model, small_tokenizer, with_stub

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
    """Takes so long for a batch, and keeps what it was asked."""

    has_prefix = False

    def __init__(self, seconds: float, *, windows: int = 1) -> None:
        self.seconds, self.windows = seconds, windows
        self.asked: list[list[str]] = []

    def encode(self, rows: Any) -> list[Given]:
        return [Given(row["id"], np.ones(7), i) for row in rows for i in range(self.windows)]

    def collate(self, examples: list[Any], *, rngs: list[Any]) -> Batch:
        ids = torch.zeros(len(examples), 7, dtype=torch.long)
        return Batch(input_ids=ids, document_ids=torch.ones_like(ids), num_targets={})

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Any]) -> list[Any]:
        self.asked.append([example.id for example in examples])
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
    """However busy the machine is, as many texts are taken."""
    monkeypatch.setattr("stages.trials.inference_speed.LONGEST_S", 1000.0)


@pytest.mark.usefixtures("patient")
def test_a_text_alone_takes_as_long_as_a_prediction_and_many_share_one() -> None:
    """Of a prediction that takes 5 ms, or that and what else the machine does."""
    sleeper = Sleeper(0.005)
    found = speed(sleeper, 600)
    assert 0.005 <= found.latency_s < 0.5
    assert [len(ids) for ids in sleeper.asked] == [1] * (WARM_UP + TIMED) + [64, 64]
    assert found.texts_per_s <= IN_BATCHES / (2 * 0.005)
    assert found.tokens_per_s == pytest.approx(7 * found.texts_per_s)


@pytest.mark.parametrize("num_rows", [1, 2, 5, 50])
def test_no_text_is_asked_for_twice_and_none_by_a_known_id(num_rows: int) -> None:
    """Where there is more than one: what a predictor remembers makes nothing look fast."""
    sleeper = Sleeper(0.0, windows=2)
    found = speed(sleeper, num_rows)
    assert found.latency_s > 0 and found.texts_per_s > 0
    asked = [id for ids in sleeper.asked for id in ids]
    times_asked = 2 * 2 if num_rows == 1 else 2
    assert set(map(asked.count, asked)) == {times_asked}
    assert not {f"row {i}" for i in range(num_rows)} & set(asked)


@pytest.mark.slow
def test_what_is_slow_is_measured_on_fewer_texts() -> None:
    sleeper = Sleeper(0.4)
    assert speed(sleeper, 60).latency_s >= 0.4
    assert WARM_UP < sum(len(ids) == 1 for ids in sleeper.asked) < TIMED


@pytest.mark.usefixtures("patient")
def test_a_probe_computes_its_states_anew_and_keeps_none_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [{"id": f"row {i}", "text": f"the class {i}", "label": "a"} for i in range(60)]
    task = Classification(LABELS, small_tokenizer(), 16)
    examples = task.encode(rows)
    backbone = small_model("encoder")
    model = ModelWithHead(backbone, task.head(backbone))
    probe = LinearProbe()
    probe.apply(model, generator=torch_stream(1, "method"))
    probe.remember(model, [task.collate(examples, rngs=[])])
    known = set(probe._states)
    computed: list[int] = []
    forward = type(backbone).forward

    def counted(self: Any, batch: Batch) -> Tensor:
        computed.append(len(batch.input_ids))
        return forward(self, batch)

    monkeypatch.setattr(type(backbone), "forward", counted)
    measure_speed(task, model, rows, examples, CPU)
    assert computed == [1] * (WARM_UP + TIMED) + [60 - WARM_UP - TIMED]
    assert set(probe._states) == known
