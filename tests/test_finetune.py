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
        remove(store.root())
        fine_tune(at(params, lr, **training))
        return files_of(FOLDER)

    return run


def without_lengths_of_test(files: dict[str, bytes]) -> dict[str, bytes]:
    """Returns the files without the lengths of test inputs."""
    lines = files["inputs.csv"].splitlines()
    kept = [line for line in lines if b",test," not in line]
    assert len(kept) == len(lines) - 1
    return files | {"inputs.csv": b"\n".join(kept)}


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


def test_rate_at_which_training_diverges_is_not_chosen(finetuned) -> None:
    with pytest.raises(
        ValueError, match=r"full\.training\.lr: training diverged at 1e\+30, the loss"
    ):
        finetuned(1e30)
    assert not FOLDER.exists()
    finetuned([1e30, 0.01])
    assert read_trials()["full"].lr == 0.01


def test_search_keeps_the_best_of_several_rates_on_validation(finetuned) -> None:
    """The order of rates does not matter. The trial equals that with the best rate alone, except
    for the cost, which is that of all rates."""
    alone = finetuned(0.01)
    single = read_trials()
    for rates in ([1e-9, 0.01], [0.01, 1e-9]):
        together = finetuned(rates)
        trials = read_trials()
        for name in ("predictions.csv.gz", *(n for n in alone if n.startswith("weights/"))):
            assert together[name] == alone[name]
        curves = records.read(FOLDER / "history.csv", records.EpochRecord)
        trial = trials["full"]
        assert [(p.lr, p.epoch) for p in curves] == [(r, e) for r in rates for e in (1, 2)]
        ends = [point for point in curves if point.epoch == 2]
        best = max(ends, key=lambda point: (point.validation_metric, -point.validation_loss))
        assert (trial.lr, trial.best_epoch) == (best.lr, best.epoch)
        assert (trial.lr, trial.num_tries, trial.num_epochs) == (0.01, 2, 2)
        assert trial.best_is_last == 1
        last = next(p for p in curves if (p.lr, p.epoch) == (0.01, 2))
        assert trial.last_train_loss == pytest.approx(last.train_loss)
        assert trial.finetune_flops == 2 * single["full"].finetune_flops
        assert trials["linear_probe"] == single["linear_probe"]


def test_trial_that_ends_too_early_differs_from_one_that_has_fitted(finetuned) -> None:
    """Two epochs are four steps each; the loss still falls in the last one."""
    finetuned(1e-3)
    short = read_trials()["full"]
    assert (short.num_epochs, short.num_steps, short.still_improving) == (2, 8, 1)
    assert short.last_train_loss is not None and short.last_train_loss > 0.3
    finetuned(0.01, min_steps=120)
    long = read_trials()["full"]
    assert (long.num_epochs, long.num_steps, long.still_improving) == (30, 120, 0)
    assert long.last_train_loss is not None and long.last_train_loss < 0.05
    finetuned(1e-30, min_steps=120, patience=3)  # nothing changes after the 3 epochs of warm-up
    stopped = read_trials()["full"]
    assert (stopped.num_epochs, stopped.best_epoch) == (6, 1)
    assert stopped.finetune_flops < long.finetune_flops
    assert stopped.chosen_in_warmup == 1 and stopped.best_is_last == 0
    curves = records.read(FOLDER / "history.csv", records.EpochRecord)
    assert [epoch.epoch for epoch in curves] == [*range(1, stopped.num_epochs + 1)]


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
    curves = records.read(FOLDER / "history.csv", records.EpochRecord)
    merits = [(point.validation_metric, -point.validation_loss) for point in curves]
    chosen = 1 + merits.index(max(merits))
    assert chosen < 6, "the test needs another epoch than the last"
    assert read_trials()["full"].best_epoch == chosen
    assert last[WEIGHTS] != best[WEIGHTS]
    assert finetuned(0.01, num_epochs=6)[WEIGHTS] == last[WEIGHTS]


def test_speed_is_measured_with_the_first_fine_tuning_seed_alone(params) -> None:
    fine_tune(params)
    costs = records.read(
        Path("data/timings/finetune/section", f"{SCRATCH}.csv"), records.CostRecord
    )
    assert {cost.finetune_seed for cost in costs} == {1, 2}
    for cost in costs:
        assert cost.hardware and (cost.threads, cost.side_by_side) == (1, 1)
        assert cost.processor_time_s > 0
        speed = (cost.latency_s, cost.texts_per_s, cost.tokens_per_s)
        if cost.finetune_seed == 1:
            assert all(value is not None and value > 0 for value in speed)
        else:
            assert speed == (None, None, None)


def test_choice_of_a_trial_does_not_see_the_test_set(finetuned) -> None:
    """Other test inputs, which never have labels, change no weight and no choice."""
    before = without_lengths_of_test(finetuned([1e-3, 0.01]))
    path = Path("data/tasks/section/examples/test.jsonl")
    rows = read_jsonl(path)
    assert not any("label" in row for row in rows)
    write_jsonl(path, [row | {"text": row["text"].swapcase()} for row in reversed(rows)])
    remove(FOLDER)
    after = without_lengths_of_test(finetuned([1e-3, 0.01]))
    assert after.pop("predictions.csv.gz") != before.pop("predictions.csv.gz")
    assert after == before


def test_seeds_of_a_published_checkpoint_share_its_estimates(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    params = at(write_study(tmp_path, lr=1e-3), 1e-3)
    public = params.runs["public"].model_copy(update={"seeds": [1, 2]})
    params = params.model_copy(update={"runs": params.runs | {"public": public}})
    write_inputs(params)
    for run in params.runs:
        pretrain_run(params, run)
    fine_tune(params)
    values = {seed: list[float | None]() for seed in public.seeds}
    for row in records.read(FOLDER.parent / "public/estimates.csv", EstimateRecord):
        values[row.pretrain_seed].append(row.value)
    assert values[1] == values[2] != []
    others = [key for key in params.checkpoints if key.run != "public"]
    assert len([*(store.root() / "estimates").iterdir()]) == len(others) + 1
