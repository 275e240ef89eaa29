"""A trial adapts a model and predicts, and its kept weights predict the same."""

from pathlib import Path
from typing import Any

import pytest
import torch

from stages.core.artifacts import read_jsonl
from stages.training.device import Device
from stages.trials import kept
from stages.trials.frozen import FrozenStates
from stages.trials.outcome import Outcome
from stages.trials.prediction import predict
from stages.trials.setup import TrialSetup
from tests.trials.small_trials import (
    CHECKPOINT,
    TASKS,
    TRAINING,
    plan_of,
    trials,
    write_checkpoint,
    write_task,
)

pytestmark = pytest.mark.slow

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
    }.items()
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def predicted_again(outcome: Outcome) -> list[str]:
    """Returns the predictions of a kept trial, as ``predict`` makes them."""
    path = kept.path_of(outcome.key)
    trial = kept.read(path)
    setup = kept.setup_of(trial, path)
    model = kept.rebuilt(trial, setup, path)
    rows = setup.rows("test", seed=trial.finetune_seed)
    answers = predict(setup.task, model, rows, setup.task.encode(rows), CPU)
    return [each.at(trial.threshold) for each in answers]


def predictions(outcome: Outcome) -> list[str]:
    return [row.prediction for row in outcome.predictions]


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_kept_weights_predict_what_the_trial_predicted(family: str) -> None:
    write_checkpoint(family)
    write_task("classification")
    methods = TRAINED | PROBE
    if family == "t5":
        methods = {name: methods[name] for name in ("full", "lora", "linear_probe")}
    outcomes = trials(plan_of(methods), "classification")
    assert [outcome.key.method for outcome in outcomes] == [*methods]
    for outcome in outcomes:
        assert predicted_again(outcome) == predictions(outcome), outcome.key.method
        trained = outcome.trial.num_trained_params
        assert (trained == outcome.trial.num_params) == (outcome.key.method == "full")


@pytest.mark.parametrize("task", TASKS)
def test_probe_of_every_kind_learns_and_is_kept(task: str) -> None:
    write_checkpoint("bert")
    write_task(task)
    (outcome,) = trials(plan_of(PROBE), task)
    trial = outcome.trial
    assert trial.C in (0.01, 1.0) and (trial.num_tries, trial.converged) == (2, 1)
    assert trial.validation_score is not None and trial.validation_score > 0.5
    assert trial.finetune_flops > 0
    assert predicted_again(outcome) == predictions(outcome)
    probabilities = [row.probability for row in outcome.predictions]
    assert (None in probabilities) == (task != "classification")


def test_probes_of_one_process_and_of_several_are_equal() -> None:
    """Budgets and seeds share states of validation and test rows, and nothing else."""
    write_checkpoint("bert")
    write_task("classification")
    several = plan_of(PROBE, label_budgets=[16, 32], seeds=[1, 2])
    together = {outcome.key: outcome for outcome in trials(several, "classification")}
    for budget, seed in ((16, 2), (32, 1)):
        plan = plan_of(PROBE, label_budgets=[budget], seeds=[seed])
        (alone,) = trials(plan, "classification")
        assert alone.trial == together[alone.key].trial
        assert alone.predictions == together[alone.key].predictions


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


def test_a_trial_is_taken_from_the_store_and_has_no_labels_of_test() -> None:
    write_checkpoint("bert")
    write_task("classification")
    first = trials(plan_of(PROBE), "classification")
    assert trials(plan_of(PROBE), "classification") == first
    assert not any(
        "label" in row for row in read_jsonl(Path("data/tasks/classification/examples/test.jsonl"))
    )
