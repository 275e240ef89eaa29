"""Trials choose their epoch and their learning rate on validation data alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stages.core.artifacts import read_jsonl, remove, write_jsonl
from stages.core.keys import TrialKey
from stages.core.params import Method, Params
from stages.evaluation import records
from stages.evaluation.transferability import EstimateRecord
from stages.trials import kept, store
from tests.small_study import (
    SCRATCH,
    files_of,
    fine_tune,
    pretrain_run,
    tuned,
    write_inputs,
    write_study,
)
from tests.smoke import alone

pytestmark = pytest.mark.slow

FOLDER = Path("data/finetuned/section", SCRATCH)
FULL = TrialKey(SCRATCH, 1, "section", "full", "64", 1)
WEIGHTS = f"weights/{kept.file_name(FULL)}"
Rates = float | list[float]


@pytest.fixture
def params(tmp_path, monkeypatch) -> Params:
    """A study with a run from scratch, in the current folder."""
    monkeypatch.chdir(tmp_path)
    params = alone(write_study(tmp_path, lr=1e-3), SCRATCH)
    pretrain_run(params, SCRATCH)
    return params


@pytest.fixture
def finetuned(params) -> Callable[..., dict[str, bytes]]:
    """Fine-tunes in full at these rates, and by a probe; returns the content of every file."""

    def run(lr: Rates, **training: Any) -> dict[str, bytes]:
        remove(store.ROOT)
        fine_tune(at(params, lr, **training))
        return files_of(FOLDER)

    return run


def at(params: Params, lr: Rates, **changes: Any) -> Params:
    """Returns the study at these rates, with two epochs by default and one seed."""

    def changed(method: Method) -> Method:
        if method.training is None:
            return method
        settings = method.training.model_dump() | {"lr": lr, "num_epochs": 2}
        training = type(method.training)(**(settings | changes))
        return method.model_copy(update={"training": training})

    methods = {name: changed(method) for name, method in params.finetune.methods.items()}
    return tuned(params, methods=methods, seeds=[1])


def read_trials() -> dict[str, records.TrialRecord]:
    return {row.method: row for row in records.read(FOLDER / "trials.csv", records.TrialRecord)}


def read_curves() -> list[records.EpochRecord]:
    return records.read(FOLDER / "history.csv", records.EpochRecord)


def test_rate_at_which_training_diverges_is_not_chosen(finetuned) -> None:
    with pytest.raises(
        ValueError, match=r"full\.training\.lr: training diverged at 1e\+30, the loss"
    ):
        finetuned(1e30)
    assert not FOLDER.exists()
    finetuned([1e30, 0.01])
    assert read_trials()["full"].lr == 0.01


def test_trial_keeps_the_best_of_several_rates_on_validation(finetuned) -> None:
    """The order of rates does not matter. The trial equals that with the best rate alone, except
    for the cost, which is that of all rates."""
    alone = finetuned(0.01)
    single = read_trials()
    for rates in ([1e-9, 0.01], [0.01, 1e-9]):
        together = finetuned(rates)
        trial = read_trials()["full"]
        for name in ("predictions.csv.gz", *(n for n in alone if n.startswith("weights/"))):
            assert together[name] == alone[name]
        curves = read_curves()
        assert [(p.lr, p.epoch) for p in curves] == [(r, e) for r in rates for e in (1, 2)]
        last = [point for point in curves if point.epoch == 2]
        best = max(last, key=lambda point: (point.validation_metric, -point.validation_loss))
        assert (trial.lr, trial.best_epoch) == (best.lr, best.epoch) == (0.01, 2)
        assert (trial.num_tries, trial.num_epochs, trial.best_is_last) == (2, 2, 1)
        assert trial.last_train_loss == pytest.approx(best.train_loss)
        assert trial.finetune_flops == 2 * single["full"].finetune_flops
        assert read_trials()["linear_probe"] == single["linear_probe"]


def test_trial_ends_when_patience_runs_out(finetuned) -> None:
    finetuned(1e-30, min_steps=120, patience=3)  # nothing changes after the 3 epochs of warm-up
    stopped = read_trials()["full"]
    assert (stopped.num_epochs, stopped.best_epoch) == (6, 1)
    assert stopped.chosen_in_warmup == 1 and stopped.best_is_last == 0
    assert [epoch.epoch for epoch in read_curves()] == [1, 2, 3, 4, 5, 6]


def test_trial_keeps_the_last_epoch_without_patience_and_the_best_with_it(finetuned) -> None:
    """Patience that does not run out changes the kept epoch and nothing else. The labels of
    validation are swapped, so that fitting the training labels lowers the score."""
    path = Path("data/tasks/section/examples/validation.jsonl")
    swapped = {"calm": "loud", "loud": "calm"}
    write_jsonl(path, [row | {"label": swapped[row["label"]]} for row in read_jsonl(path)])
    last = finetuned(0.01, num_epochs=6)
    trial = read_trials()["full"]
    assert (trial.best_epoch, trial.num_epochs, trial.best_is_last) == (6, 6, 0)
    best = finetuned(0.01, num_epochs=6, patience=6)
    assert last["history.csv"] == best["history.csv"]
    merits = [(point.validation_metric, -point.validation_loss) for point in read_curves()]
    chosen = 1 + merits.index(max(merits))
    assert chosen < 6, "the test needs another epoch than the last"
    assert read_trials()["full"].best_epoch == chosen
    assert last[WEIGHTS] != best[WEIGHTS]


def test_choice_of_a_trial_does_not_see_the_test_set(finetuned) -> None:
    """Other test inputs, which never have labels, change no weight and no choice."""

    def chosen(files: dict[str, bytes]) -> dict[str, bytes]:
        """Returns the files without the predictions and the lengths of test inputs."""
        lines = [line for line in files["inputs.csv"].splitlines() if b",test," not in line]
        others = {n: content for n, content in files.items() if n != "predictions.csv.gz"}
        return others | {"inputs.csv": b"\n".join(lines)}

    before = finetuned([1e-3, 0.01])
    path = Path("data/tasks/section/examples/test.jsonl")
    rows = read_jsonl(path)
    assert not any("label" in row for row in rows)
    write_jsonl(path, [row | {"text": row["text"].swapcase()} for row in reversed(rows)])
    remove(FOLDER)
    after = finetuned([1e-3, 0.01])
    assert after["predictions.csv.gz"] != before["predictions.csv.gz"]
    assert chosen(after) == chosen(before)


def test_seeds_of_a_published_checkpoint_have_equal_estimates_and_the_first_measures_speed(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    params = alone(tuned(at(write_study(tmp_path, lr=1e-3), 1e-3), seeds=[1, 2]), "public")
    public = params.models["public"].model_copy(update={"seeds": [1, 2]})
    params = params.model_copy(update={"models": {"public": public}})
    write_inputs(params)
    pretrain_run(params, "public")
    fine_tune(params)
    values = {seed: list[float | None]() for seed in public.seeds}
    for row in records.read(FOLDER.parent / "public/estimates.csv", EstimateRecord):
        values[row.pretrain_seed].append(row.value)
    assert values[1] == values[2] != []
    for cost in records.read(Path("data/timings/finetune/section/public.csv"), records.CostRecord):
        assert cost.hardware and (cost.threads, cost.side_by_side) == (1, 1)
        speed = (cost.latency_s, cost.texts_per_s, cost.tokens_per_s)
        assert all(map(bool, speed)) == (cost.finetune_seed == 1)
