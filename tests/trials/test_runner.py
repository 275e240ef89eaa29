"""A trial adapts a model and predicts, its kept weights predict the same, and its speed is measured
on texts that the model has not seen."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from stages.core.artifacts import read_jsonl
from stages.models._heads import ModelWithHead
from stages.text.batch import Batch
from stages.training.device import Device
from stages.trials import kept, prediction
from stages.trials.prediction import IN_BATCHES, TIMED, WARM_UP, FrozenStates, predict
from stages.trials.runner import Trial
from stages.trials.setup import TrialSetup
from stages.trials.store import ROOT
from tests.small import with_stub
from tests.trials.small_trials import (
    CHECKPOINT,
    TASKS,
    TRAINING,
    plan_of,
    trials,
    write_checkpoint,
    write_task,
)

CPU = Device("cpu", "float32", compile=False, threads=1)
PROBE: dict[str, Any] = {"linear_probe": {"method": {"name": "linear_probe", "C": [0.01, 1.0]}}}
TRAINED: dict[str, Any] = {
    name: {"method": {"name": name, **settings}, "training": TRAINING}
    for name, settings in {
        "full": {},
        "lora": {"rank": 2},
        "adapter": {"bottleneck": 4},
        "prompt": {"num_prompt_tokens": 3},
        "prefix": {"num_prefix_tokens": 3},
        "bitfit": {},
        "gradual_unfreezing": {},
        "setfit": {"num_pairs": 2, "C": [0.1, 1.0]},
    }.items()
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def predicted_again(trial: Trial) -> list[str]:
    """Returns the predictions of a kept trial, as ``predict`` makes them."""
    path = kept.path_of(trial.key)
    about = kept.read(path)
    setup = kept.setup_of(about, path)
    model = kept.rebuilt(about, setup, path)
    rows = setup.rows("test", seed=about.finetune_seed)
    answers = predict(setup.task, model, rows, setup.task.encode(rows), CPU)
    return [each.at(about.threshold) for each in answers]


def predictions(trial: Trial) -> list[str]:
    return [row.prediction for row in trial.predictions]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_kept_weights_predict_what_the_trial_predicted(family: str) -> None:
    write_checkpoint(family)
    write_task("classification")
    methods = TRAINED | PROBE
    if family == "t5":
        methods = {name: methods[name] for name in ("full", "lora", "linear_probe", "setfit")}
    done = trials(plan_of(methods), "classification")
    assert [trial.key.method for trial in done] == [*methods]
    for trial in done:
        assert predicted_again(trial) == predictions(trial), trial.key.method
        trained = trial.record.num_trained_params
        assert (trained == trial.record.num_params) == (trial.key.method in ("full", "setfit"))


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_probe_of_every_kind_learns_and_is_kept(task: str) -> None:
    write_checkpoint("bert")
    write_task(task)
    (trial,) = trials(plan_of(PROBE), task)
    record = trial.record
    assert (record.num_tries, record.converged) == (2, 1) and record.finetune_flops > 0
    assert record.validation_score is not None and record.validation_score > 0.5
    assert predicted_again(trial) == predictions(trial)


@pytest.mark.slow
def test_trials_of_one_process_and_of_several_are_equal() -> None:
    """Budgets and seeds share states of validation and test rows, and nothing else. What is taken
    from the store equals what was computed."""
    write_checkpoint("bert")
    write_task("classification")
    methods = PROBE | {"setfit": TRAINED["setfit"]}
    several = plan_of(methods, label_budgets=[16, 32], seeds=[1, 2])
    done = trials(several, "classification")
    assert trials(several, "classification") == done
    together = {trial.key: trial for trial in done}
    for budget, seed in ((16, 2), (32, 1)):
        plan = plan_of(methods, label_budgets=[budget], seeds=[seed])
        shutil.rmtree(ROOT)  # the store
        for alone in trials(plan, "classification"):
            assert alone.record == together[alone.key].record
            assert alone.predictions == together[alone.key].predictions
    test = read_jsonl(Path("data/tasks/classification/examples/test.jsonl"))
    assert not any("label" in row for row in test)


def test_frozen_states_are_what_the_head_reads_and_are_computed_once() -> None:
    write_checkpoint("bert")
    write_task("tagging")
    setup = TrialSetup(CHECKPOINT, "tagging", max_tokens=64)
    model, examples = setup.headed(seed=1), setup.task.encode(setup.rows("train", seed=1))
    frozen = FrozenStates(setup.task, CPU)
    frozen.compute(model, examples)
    one = setup.task.collate(examples[:1], rngs=[])
    with torch.no_grad():
        expected = model.backbone(one)[0]
    torch.testing.assert_close(frozen.of(examples[:1])[0], expected, atol=1e-4, rtol=1e-3)
    states, labels, weights = frozen.labelled(examples)
    num_words = sum(len(row["words"]) for row in setup.rows("train", seed=1))
    assert len(states) == len(labels) == len(weights) == num_words

    def refuse(batch: object) -> Any:
        raise AssertionError("computed again")

    model.backbone.forward = refuse  # type: ignore[method-assign]
    frozen.compute(model, examples)
    with pytest.raises(AssertionError, match="computed again"):
        frozen.compute(model, examples[:1], anew=True)


# Speed -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """An example."""

    id: str
    tokens: np.ndarray
    window: int = 0


class Sleeper:
    """A predictor that takes ``seconds`` for a batch and records the ids of its texts."""

    has_prefix = False

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.batches: list[list[str]] = []

    def encode(self, rows: Any) -> list[Given]:
        return [Given(row["id"], np.ones(7)) for row in rows]

    def collate(self, examples: list[Any], *, rngs: list[Any]) -> Batch:
        ids = torch.zeros(len(examples), 7, dtype=torch.long)
        return Batch(input_ids=ids, document_ids=torch.ones_like(ids), num_targets={})

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Any]) -> list[Any]:
        self.batches.append([example.id for example in examples])
        time.sleep(self.seconds)
        return [0 for _ in examples]

    def combine(self, row: Any, predictions: list[Any]) -> str:
        return "a"


def speed(sleeper: Sleeper, num_rows: int) -> dict[str, float]:
    rows = [{"id": f"row {i}", "text": "a text"} for i in range(num_rows)]
    model = with_stub(nn.Identity(), nn.Identity())
    return prediction.measured_speed(sleeper, model, rows, sleeper.encode(rows), CPU)


def test_measured_speed_is_of_texts_alone_and_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prediction takes 5 ms, or longer on a busy machine. No text is predicted twice."""
    monkeypatch.setattr(prediction, "LONGEST_S", 1000.0)
    sleeper = Sleeper(0.005)
    measured = speed(sleeper, 600)
    assert 0.005 <= measured["latency_s"] < 0.5
    assert [len(ids) for ids in sleeper.batches] == [1] * (WARM_UP + TIMED) + [64, 64]
    assert measured["texts_per_s"] <= IN_BATCHES / (2 * 0.005)
    assert measured["tokens_per_s"] == pytest.approx(7 * measured["texts_per_s"], rel=1e-2)
    predicted = [id for ids in sleeper.batches for id in ids]
    assert len({*predicted}) == len(predicted)
