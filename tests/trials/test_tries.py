"""A trial tries every variant, keeps the one that is best on validation, and records all of them.

The model is a decoder from scratch; its variants are two states to read and two initial weights.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from stages.core.artifacts import read_json, read_jsonl, remove, write_json
from stages.core.params import Compute, InitialWeights
from stages.evaluation import records
from stages.evaluation.records import LostPredictionRecord, PredictionRecord, TryRecord
from stages.training.device import resolve
from stages.trials import kept, new_rows, store
from stages.trials.setup import TrialSetup
from tests.small_study import SCRATCH, files_of, fine_tune, pretrain_run, tuned, write_study
from tests.smoke import alone

pytestmark = pytest.mark.slow

FOLDER = Path("data/finetuned/section", SCRATCH)
TASK = Path("data/tasks/section/examples/task.json")
BOTH: list[InitialWeights] = ["as_pretrained", "usual"]


@pytest.fixture
def run(tmp_path, monkeypatch) -> Callable[..., dict[str, bytes]]:
    """A function that fine-tunes in full at two rates and by a probe, with settings of the task and
    initial weights, and returns the content of every file."""
    monkeypatch.chdir(tmp_path)
    params = write_study(tmp_path, lr=[1e-2, 3e-3])
    entry = params.runs[SCRATCH]
    decoder = entry.model_copy(update={"model": entry.model | {"name": "decoder"}})
    params = alone(params.model_copy(update={"runs": {SCRATCH: decoder}}), SCRATCH)
    pretrain_run(params, SCRATCH)
    methods = params.finetune.methods
    record = read_json(TASK)

    def finetuned(
        pooling: Any, weights: list[InitialWeights], *, layers: Any = "last", **task: Any
    ) -> dict[str, bytes]:
        write_json(TASK, record | {"task": record["task"] | {"pooling": pooling, **task}})
        remove(store.root())
        probe = methods["linear_probe"]
        probe = probe.model_copy(update={"method": probe.method | {"layers": layers}})
        settings = {"initial_weights": weights, "label_budgets": [32, 64], "seeds": [1]}
        fine_tune(tuned(params, methods=methods | {"linear_probe": probe}, **settings))
        return files_of(FOLDER)

    return finetuned


def trials() -> list[records.TrialRecord]:
    return records.read(FOLDER / "trials.csv", records.TrialRecord)


def tries() -> dict[tuple[str, str], list[TryRecord]]:
    """Returns the tries by method and label budget."""
    by_trial = defaultdict(list)
    for tried in records.read(FOLDER / "tries.csv", TryRecord):
        by_trial[tried.method, tried.label_budget].append(tried)
    return by_trial


def predictions() -> dict[tuple[str, str, str, str], list[tuple[str, str, float | None]]]:
    """Returns the predictions of each variant of each trial, kept or lost."""
    by_variant = defaultdict(list)
    chosen = {(t.method, t.label_budget): (t.read_out, t.initial_weights) for t in trials()}
    for row in records.read(FOLDER / "predictions.csv.gz", PredictionRecord):
        place = row.method, row.label_budget
        by_variant[(*place, *chosen[place])].append((row.id, row.prediction, row.probability))
    for row in records.read(FOLDER / "lost_predictions.csv.gz", LostPredictionRecord):
        place = row.method, row.label_budget, row.read_out, row.initial_weights
        by_variant[place].append((row.id, row.prediction, row.probability))
    return by_variant


def weights_of(trial: records.TrialRecord) -> dict[str, bytes]:
    """Returns the kept tensors of a trial, by their names."""
    tensors = load_file(weights_file(trial))
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


def weights_file(trial: records.TrialRecord) -> Path:
    return FOLDER / "weights" / kept.file_name(trial.key)


def test_trial_with_a_list_of_one_value_is_that_with_the_value(run) -> None:
    """Only the record in the files of weights differs: it has the hash of the prepared task."""

    def without_weights(files: dict[str, bytes]) -> dict[str, bytes]:
        return {name: data for name, data in files.items() if not name.startswith("weights/")}

    value, of_value = run("last", ["usual"]), [*map(weights_of, trials())]
    listed = run(["last"], ["usual"], dropout=[0.1], layers=["last"])
    assert without_weights(listed) == without_weights(value)
    assert [*map(weights_of, trials())] == of_value
    assert {trial.read_out for trial in trials()} == {""}
    assert records.read(FOLDER / "lost_predictions.csv.gz", LostPredictionRecord) == []


def test_variant_of_a_trial_is_the_trial_with_its_values_alone(run) -> None:
    """Predictions and validation scores are equal bit for bit. The kept variant is the best on
    validation. FLOPs and tries are those of all variants."""
    run(["mean", "last"], BOTH)
    chosen = {(trial.method, trial.label_budget): trial for trial in trials()}
    listed, by_variant = tries(), predictions()
    together = {place: weights_of(trial) for place, trial in chosen.items()}
    curves = records.read(FOLDER / "history.csv", records.EpochRecord)
    assert {(e.read_out, e.initial_weights, e.lr) for e in curves} == {
        (f"pooling={pooling}", weights, lr)
        for pooling in ("mean", "last")
        for weights in BOTH
        for lr in (1e-2, 3e-3)
    }
    names = [("pooling=mean", w) for w in BOTH] + [("pooling=last", w) for w in BOTH]
    flops, number = defaultdict[Any, int](int), defaultdict[Any, int](int)
    for read_out, weights in names:
        run(read_out.removeprefix("pooling="), [weights])
        alone, own = predictions(), tries()
        for trial in trials():
            place = trial.method, trial.label_budget
            assert by_variant[(*place, read_out, weights)] == alone[(*place, "", weights)]
            (of_alone,) = own[place]
            (variant,) = [
                tried
                for tried in listed[place]
                if (tried.read_out, tried.initial_weights) == (read_out, weights)
            ]
            assert variant.validation_metric == of_alone.validation_metric
            assert variant.validation_loss == of_alone.validation_loss
            flops[place] += trial.finetune_flops
            number[place] += trial.num_tries
            if variant.kept:
                of_all = {"num_tries": 0, "finetune_flops": 0, "read_out": ""}
                assert asdict(chosen[place]) | of_all == asdict(trial) | of_all
                assert together[place] == weights_of(trial)
    for place, members in listed.items():
        assert [(m.initial_weights, m.read_out) for m in members] == [
            (weights, f"pooling={pooling}") for weights in BOTH for pooling in ("mean", "last")
        ]
        merits = [(m.validation_metric, -(m.validation_loss or 0)) for m in members]
        assert [m.kept for m in members] == [int(i == merits.index(max(merits))) for i in range(4)]
        trial = chosen[place]
        assert trial.num_tries == number[place] == 8  # two rates, or two values of C
        if trial.method == "full":
            assert trial.finetune_flops == flops[place]
        else:  # states are computed once for each of two backbones
            assert flops[place] / 2 < trial.finetune_flops < flops[place]


def test_kept_trial_predicts_new_rows_as_the_test_rows(run) -> None:
    """Holds if the kept variant is the first of the list, and if it is another one."""
    settings: Any = {"device": "cpu", "precision": "float32", "compile": False}
    device = resolve(Compute(**settings, threads=1, trial_threads=1), threads=1)
    rows, places = read_jsonl(TASK.with_name("test.jsonl")), set[int]()
    for order in (["mean", "last"], ["last", "mean"]):
        run(order, ["usual", "as_pretrained"])
        by_variant, listed = predictions(), tries()
        for trial in trials():
            place, path = (trial.method, trial.label_budget), weights_file(trial)
            about = kept.read(path)
            assert f"pooling={about.task_settings['pooling']}" == trial.read_out
            assert about.initial_weights == trial.initial_weights
            setup = kept.setup_of(about, path)
            model = kept.rebuilt(about, setup, path).to(device.torch)
            new = [new_rows.NewRow({"id": row["id"]}, row) for row in rows]
            every = new_rows.Abstention()
            predicted = [*new_rows.predictions(about, setup, model, new, device, every)]
            expected = by_variant[(*place, trial.read_out, trial.initial_weights)]
            assert [(row["id"], row["label"]) for row in predicted] == [e[:2] for e in expected]
            places.add([tried.kept for tried in listed[place]].index(1))
    assert 0 in places and len(places) > 1, "the test needs both cases"


def test_variant_that_diverges_is_not_chosen(run, monkeypatch) -> None:
    """A diverged variant has no predictions. A trial fails if all of its variants diverge."""
    adapted = TrialSetup.adapted

    def broken(self: TrialSetup, method: Any, *, seed: int) -> Any:
        model = adapted(self, method, seed=seed)
        if self.variant.task.get("pooling") in lost and type(method).__name__ == "Full":
            with torch.no_grad():
                model.head.linear.weight.fill_(float("nan"))
        return model

    monkeypatch.setattr(TrialSetup, "adapted", broken)
    lost = ["mean"]
    run(["mean", "last"], ["usual"])
    for trial in trials():
        diverged, other = tries()[trial.method, trial.label_budget]
        if trial.method == "full":
            assert (diverged.validation_metric, diverged.kept, other.kept) == (None, 0, 1)
            assert trial.read_out == "pooling=last" and trial.num_tries == 4
            place = (trial.method, trial.label_budget, "pooling=mean", "usual")
            assert place not in predictions()
    lost = ["mean", "last"]
    with pytest.raises(ValueError, match=r"full\.training\.lr: training diverged at 0\.003"):
        run(["mean", "last"], ["usual"])
