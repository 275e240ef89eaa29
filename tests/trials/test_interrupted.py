"""An interrupted trial goes on in the middle of its training."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from stages.core.artifacts import remove
from stages.core.params import Params
from stages.evaluation import records
from stages.training import loop
from stages.training.checkpoint import Resumable
from stages.trials.groups import UNFINISHED
from tests.small_study import SCRATCH, files_of, fine_tune, pretrain_run, tuned, write_study
from tests.smoke import alone

pytestmark = pytest.mark.slow

STORE, RESULT = Path(".scratch/trials"), Path("data/finetuned/section") / SCRATCH


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """Full fine-tuning at two rates with patience, gradual unfreezing and a probe. Each tries two
    states to read and two initial weights. The model has dropout."""
    monkeypatch.chdir(tmp_path)
    section = {"name": "classification", "pooling": ["mean", "first"]}
    params = write_study(tmp_path, lr=[1e-3, 1e-2], section=section)
    run = params.runs[SCRATCH]
    run = run.model_copy(update={"model": run.model | {"dropout": 0.1}})
    full = params.finetune.methods["full"]
    assert full.training
    patient = full.training.model_copy(update={"patience": 2, "num_epochs": 6})
    params = tuned(
        params.model_copy(update={"runs": {SCRATCH: run}}),
        methods={
            "full": full.model_copy(update={"training": patient}),
            "gradual": full.model_copy(update={"method": {"name": "gradual_unfreezing"}}),
            "probe": params.finetune.methods["linear_probe"],
        },
        label_budgets=[32],
        seeds=[1],
        initial_weights=["as_pretrained", "usual"],
    )
    pretrain_run(params, SCRATCH)
    return alone(params, SCRATCH)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each step that is computed."""
    add_gradients, computed = loop.add_gradients, list[int]()

    def counted(*inputs: Any, **settings: Any) -> Any:
        computed.append(1)
        return add_gradients(*inputs, **settings)

    monkeypatch.setattr(loop, "add_gradients", counted)
    return computed


def interrupt(patch: pytest.MonkeyPatch, name: str, *, every: int) -> None:
    """Interrupts the process at each ``every``-th call of a method that saves a state."""
    save: Callable[..., None] = getattr(Resumable, name)
    calls = count(1)

    def saved(*state: Any) -> None:
        save(*state)
        if next(calls) % every == 0:
            raise KeyboardInterrupt

    patch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)  # saves after each step
    patch.setattr(Resumable, name, saved)


def test_fine_tuning_ends_as_if_it_had_not_been_interrupted(
    params: Params, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step is computed twice. The interruptions are in the middle of an epoch and at the end of
    each variant; the files hold scores, epochs of all rates, predictions, tries and weights."""
    fine_tune(params)
    at_once, needed = files_of(RESULT), len(steps)
    assert at_once.keys() > {"trials.csv", "history.csv", "predictions.csv.gz", "tries.csv"}
    assert len(records.read(RESULT / "tries.csv", records.TryRecord)) == 3 * 4
    remove(STORE)
    remove(RESULT)
    steps.clear()
    interrupt(monkeypatch, "save", every=5)
    interrupt(monkeypatch, "finish", every=1)
    interruptions = 0
    while not RESULT.exists():
        try:
            fine_tune(params)
        except KeyboardInterrupt:
            interruptions += 1
    assert interruptions > 4
    assert len(steps) == needed
    assert files_of(RESULT) == at_once
    assert not any(UNFINISHED.iterdir())


def test_fine_tuning_removes_the_state_of_a_trial_that_is_no_longer_listed(
    params: Params, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt(patch, "save", every=5)
        fine_tune(params)
    done = len(steps)
    fine_tune(tuned(params, seeds=[2]))
    assert not any(UNFINISHED.iterdir())
    steps.clear()
    remove(STORE)
    fine_tune(params)
    assert len(steps) > done
