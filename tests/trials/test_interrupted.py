"""A trial that is interrupted goes on inside its training."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from stages import finetune, pretrain
from stages.core.artifacts import remove
from stages.core.params import Params
from stages.evaluation import records
from stages.training import loop
from stages.training.checkpoint import Resumable
from stages.trials.groups import UNFINISHED
from tests.small_study import SCRATCH, write_study
from tests.smoke import alone

pytestmark = pytest.mark.slow

TASK = "section"
STORE, RESULT = Path(".scratch/trials"), Path("data/finetuned") / TASK / SCRATCH
SAVES = 5  # of a process before it is interrupted: in the middle of an epoch


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """Full fine-tuning at two rates with patience, gradual unfreezing and a probe, each reading two
    states and starting from two initial weights; a model with dropout."""
    monkeypatch.chdir(tmp_path)
    section = {"name": "classification", "pooling": ["mean", "first"]}
    params = write_study(tmp_path, lr=[1e-3, 1e-2], section=section)
    run = params.pretrain[SCRATCH]
    run = run.model_copy(update={"model": run.model | {"dropout": 0.1}})
    full = params.finetune.methods["full"]
    assert full.training
    patient = full.training.model_copy(update={"patience": 2, "num_epochs": 6})
    methods = {
        "full": full.model_copy(update={"training": patient}),
        "gradual": full.model_copy(update={"method": {"name": "gradual_unfreezing"}}),
        "probe": params.finetune.methods["linear_probe"],
    }
    settings = {"methods": methods, "label_budgets": [32], "seeds": [1]}
    settings |= {"initial_weights": ["as_pretrained", "usual"]}
    tuned = params.finetune.model_copy(update=settings)
    params = params.model_copy(
        update={"pretrain": params.pretrain | {SCRATCH: run}, "finetune": tuned}
    )
    pretrain.main(params, SCRATCH)
    return alone(params, SCRATCH)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each step that is computed."""
    accumulate, computed = loop.accumulate, list[int]()

    def counted(*inputs: Any, **settings: Any) -> float:
        computed.append(1)
        return accumulate(*inputs, **settings)

    monkeypatch.setattr(loop, "accumulate", counted)
    return computed


def results() -> dict[str, bytes]:
    files = [file for file in RESULT.rglob("*") if file.is_file()]
    return {file.relative_to(RESULT).as_posix(): file.read_bytes() for file in files}


def interrupted(save: Callable[..., None], *, every: int = SAVES) -> Callable[..., None]:
    saves = count(1)

    def saved(*state: Any) -> None:
        save(*state)
        if next(saves) % every == 0:
            raise KeyboardInterrupt

    return saved


def test_it_ends_as_if_it_had_not_been(
    params: Params, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step is computed twice, since each is saved here: within a variant of a trial, and where
    one has ended. The files hold the scores, the epochs of all rates, the predictions, what all
    variants came to, and the weights."""
    finetune.main(params, TASK)
    at_once, needed = results(), len(steps)
    assert at_once.keys() > {"trials.csv", "history.csv", "predictions.csv.gz", "tries.csv"}
    assert len(records.read(RESULT / "tries.csv", records.TryRecord)) == 3 * 4
    remove(STORE)
    remove(RESULT)
    steps.clear()
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(Resumable, "save", interrupted(Resumable.save))
    monkeypatch.setattr(Resumable, "finish", interrupted(Resumable.finish, every=2))
    interruptions = 0
    while not RESULT.exists():
        try:
            finetune.main(params, TASK)
        except KeyboardInterrupt:
            interruptions += 1
    assert interruptions > 4
    assert len(steps) == needed
    assert results() == at_once
    assert not any(UNFINISHED.iterdir())


def test_what_another_trial_left_is_not_taken_and_goes(
    params: Params, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)
        patch.setattr(Resumable, "save", interrupted(Resumable.save))
        finetune.main(params, TASK)
    done = len(steps)
    seeds = params.finetune.model_copy(update={"seeds": [2]})
    finetune.main(params.model_copy(update={"finetune": seeds}), TASK)
    assert not any(UNFINISHED.iterdir())
    steps.clear()
    remove(STORE)
    finetune.main(params, TASK)
    assert len(steps) > done
