"""A trial tries every variant, keeps the one that is best on validation, and says what all came to.

A decoder from scratch, whose variants are two states that are read and two initial weights.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from stages import finetune, pretrain
from stages.core.artifacts import read_json, read_jsonl, remove, write_json
from stages.core.params import Compute, InitialWeights, Params
from stages.evaluation import records
from stages.evaluation.records import LostPredictionRecord, PredictionRecord, TryRecord
from stages.methods.linear_probe import _Remembered
from stages.models._transformer import TransformerBackbone
from stages.training.device import resolve
from stages.trials import kept, new_rows, store
from stages.trials.setup import TrialSetup
from tests.small_study import SCRATCH, write_study
from tests.smoke import alone

pytestmark = pytest.mark.slow

FOLDER = Path("data/finetuned/section", SCRATCH)
TASK = Path("data/tasks/section/examples/task.json")
BOTH: list[InitialWeights] = ["as_pretrained", "usual"]
Settings = dict[str, Any]


@pytest.fixture
def run(tmp_path, monkeypatch) -> Callable[..., dict[str, bytes]]:
    """Fine-tunes in full at two rates, and by a probe, with these settings of the task and these
    initial weights; gives the content of every file."""
    monkeypatch.chdir(tmp_path)
    params = write_study(tmp_path, lr=[1e-2, 3e-3])
    entry = params.pretrain[SCRATCH]
    decoder = entry.model_copy(update={"model": entry.model | {"name": "decoder"}})
    params = alone(params.model_copy(update={"pretrain": {SCRATCH: decoder}}), SCRATCH)
    pretrain.main(params, SCRATCH)
    record = read_json(TASK)

    def finetuned(
        pooling: Any, weights: list[InitialWeights], *, layers: Any = "last", **task: Any
    ) -> dict[str, bytes]:
        write_json(TASK, record | {"task": record["task"] | {"pooling": pooling, **task}})
        remove(store.root())
        finetune.main(with_settings(params, weights, layers), "section")
        files = sorted(path for path in FOLDER.rglob("*") if path.is_file())
        return {path.relative_to(FOLDER).as_posix(): path.read_bytes() for path in files}

    return finetuned


def with_settings(params: Params, weights: list[InitialWeights], layers: Any) -> Params:
    probe = params.finetune.methods["linear_probe"]
    probe = probe.model_copy(update={"method": probe.method | {"layers": layers}})
    settings = {
        "methods": params.finetune.methods | {"linear_probe": probe},
        "initial_weights": weights,
        "label_budgets": [32, 64],
        "seeds": [1],
    }
    return params.model_copy(update={"finetune": params.finetune.model_copy(update=settings)})


def trials() -> list[records.TrialRecord]:
    return records.read(FOLDER / "trials.csv", records.TrialRecord)


def tries() -> dict[tuple[str, str], list[TryRecord]]:
    """By method and label budget."""
    found = defaultdict(list)
    for each in records.read(FOLDER / "tries.csv", TryRecord):
        found[each.method, each.label_budget].append(each)
    return found


def predictions() -> dict[tuple[str, str, str, str], list[tuple[str, str, float | None]]]:
    """Of each variant of each trial, kept or lost."""
    found = defaultdict(list)
    chosen = {(t.method, t.label_budget): (t.read_out, t.initial_weights) for t in trials()}
    for row in records.read(FOLDER / "predictions.csv.gz", PredictionRecord):
        place = row.method, row.label_budget
        found[(*place, *chosen[place])].append((row.id, row.prediction, row.probability))
    for row in records.read(FOLDER / "lost_predictions.csv.gz", LostPredictionRecord):
        place = row.method, row.label_budget, row.read_out, row.initial_weights
        found[place].append((row.id, row.prediction, row.probability))
    return found


def weights_of(trial: records.TrialRecord) -> dict[str, bytes]:
    """The tensors that are kept of a trial, by their names."""
    tensors = load_file(weights_file(trial))
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


def weights_file(trial: records.TrialRecord) -> Path:
    return FOLDER / "weights" / f"{trial.method}-{trial.label_budget}-1.safetensors"


def test_a_list_of_one_value_is_that_value(run) -> None:
    """But for the record in the files of weights, which names the task as it was prepared."""

    def without_weights(files: dict[str, bytes]) -> dict[str, bytes]:
        return {name: data for name, data in files.items() if not name.startswith("weights/")}

    value, of_value = run("last", ["usual"]), [*map(weights_of, trials())]
    listed = run(["last"], ["usual"], dropout=[0.1], layers=["last"])
    assert without_weights(listed) == without_weights(value)
    assert [*map(weights_of, trials())] == of_value
    assert {trial.read_out for trial in trials()} == {""}
    assert records.read(FOLDER / "lost_predictions.csv.gz", LostPredictionRecord) == []


def test_each_variant_is_the_trial_that_it_is_alone(run) -> None:
    """Predictions and validation of each are those of a study with its values alone, bit for bit;
    the kept one is the best on validation; FLOPs and tries are those of all."""
    run(["mean", "last"], BOTH)
    found, listed, given = {(t.method, t.label_budget): t for t in trials()}, tries(), predictions()
    together = {place: weights_of(trial) for place, trial in found.items()}
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
            assert given[(*place, read_out, weights)] == alone[(*place, "", weights)]
            (mine,) = own[place]
            (here,) = [
                each
                for each in listed[place]
                if (each.read_out, each.initial_weights) == (read_out, weights)
            ]
            assert (here.validation_metric, here.validation_loss) == (
                mine.validation_metric,
                mine.validation_loss,
            )
            flops[place] += trial.finetune_flops
            number[place] += trial.num_tries
            if here.kept:
                same = asdict(trial) | {"num_tries": 0, "finetune_flops": 0, "read_out": ""}
                chosen = asdict(found[place]) | {"num_tries": 0, "finetune_flops": 0}
                assert chosen | {"read_out": ""} == same
                assert together[place] == weights_of(trial)
    for place, members in listed.items():
        assert [(m.initial_weights, m.read_out) for m in members] == [
            (weights, f"pooling={pooling}") for weights in BOTH for pooling in ("mean", "last")
        ]
        merits = [(m.validation_metric, -(m.validation_loss or 0)) for m in members]
        assert [m.kept for m in members] == [int(i == merits.index(max(merits))) for i in range(4)]
        trial = found[place]
        assert trial.num_tries == number[place] == 8  # two rates, or two values of C
        if trial.method == "full":
            assert trial.finetune_flops == flops[place]
        else:  # states are computed once for each of two backbones
            assert flops[place] / 2 < trial.finetune_flops < flops[place]


def test_states_of_a_backbone_are_computed_once_for_all_variants(run, monkeypatch) -> None:
    """Of the labelled rows once for each trial, since padding changes their last bit; of the other
    rows once: from scratch for each of two initial weights, whatever is read of them."""
    computed, of_text = list[int](), TransformerBackbone.forward

    def counted(self: TransformerBackbone, batch: Any) -> torch.Tensor:
        computed.append(len(batch.example_ids))
        return of_text(self, batch)

    remember, inside = _Remembered.remember, list[int]()

    def remembering(self: _Remembered, batch: Any, *, anew: bool) -> None:
        before = len(computed)
        remember(self, batch, anew=anew)
        inside.extend(computed[before:])

    monkeypatch.setattr(TransformerBackbone, "forward", counted)
    monkeypatch.setattr(_Remembered, "remember", remembering)
    run("mean", ["as_pretrained"])
    once = sum(inside)
    for pooling, weights, expected in (
        (["mean", "last"], ["usual"], once),
        (["mean", "last"], BOTH, 2 * once),
    ):
        inside.clear()
        run(pooling, weights)
        assert sum(inside) == expected


def test_what_is_kept_predicts_new_rows_as_the_test_rows(run) -> None:
    """Whichever variant is kept: the first of the list, or another one."""
    settings: Any = {"device": "cpu", "precision": "float32", "compile": False}
    device = resolve(Compute(**settings, threads=1, trial_threads=1), threads=1)
    rows, places = read_jsonl(TASK.with_name("test.jsonl")), set[int]()
    for order in (["mean", "last"], ["last", "mean"]):
        run(order, ["usual", "as_pretrained"])
        given, listed = predictions(), tries()
        for trial in trials():
            place, path = (trial.method, trial.label_budget), weights_file(trial)
            about = kept.read(path)
            assert f"pooling={about.task_settings['pooling']}" == trial.read_out
            assert about.initial_weights == trial.initial_weights
            setup = kept.setup_of(about, path)
            model = kept.rebuilt(about, setup, path).to(device.torch)
            new = [new_rows.NewRow({"id": row["id"]}, row) for row in rows]
            told = [*new_rows.predictions(about, setup, model, new, device)]
            expected = given[(*place, trial.read_out, trial.initial_weights)]
            assert [(each["id"], each["label"]) for each in told] == [e[:2] for e in expected]
            places.add([each.kept for each in listed[place]].index(1))
    assert 0 in places and len(places) > 1, "else nothing is shown"


def test_a_variant_that_diverges_is_none_to_choose(run, monkeypatch) -> None:
    """And has no predictions; a trial all of whose variants diverge fails."""
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
