"""What is shown of a study, before MLflow sees it."""

from pathlib import Path

from stages.core.artifacts import write_json
from stages.core.params import Params
from stages.evaluation.records import read_texts
from stages.tracking.records import RunRecord, curves, recorded
from tests.tracking.tracked_study import LOSSES, TRIAL, write_report, write_table


def named(params: Params) -> dict[str, RunRecord]:
    return {record.name: record for record in recorded(params)}


def points(record: RunRecord, key: str) -> list[tuple[int, float]]:
    return [(step, value) for name, value, step in record.points if name == key]


def test_recorded_losses_of_two_objectives_have_two_names(params: Params) -> None:
    shown = named(params)
    masked, causal = shown["pretrain encoder_mlm, seed 1"], shown["pretrain decoder_causal, seed 1"]
    assert points(masked, "loss/mlm") == points(causal, "loss/causal") == LOSSES
    assert points(masked, "validation_loss/mlm") == [(8, 5.5)]
    shared = {key for key, *_ in masked.points} & {key for key, *_ in causal.points}
    assert shared == {"lr", "pretrain/num_params"}


def test_recorded_trial_has_its_score_and_its_epochs_without_those_that_diverged(
    params: Params,
) -> None:
    trial = named(params)[TRIAL]
    assert points(trial, "score/tag") == [(0, 0.42)] and points(trial, "accuracy/tag") == [(0, 1)]
    assert points(trial, "train_loss/tag") == [(1, 2.0), (2, 1.0), (3, 2 / 3)]
    assert points(trial, "validation_loss/tag") == [(1, 2.0), (2, 1.0)]
    assert points(trial, "trial/best_epoch") == [(0, 1.0)]


def test_recorded_costs_are_measured(params: Params) -> None:
    machine = {"hardware": "AMD EPYC", "threads": 2}
    folder = Path("data/timings/pretrain/encoder_mlm")
    folder.mkdir(parents=True)
    write_json(folder / "1.json", machine | {"wall_time_s": 6.0, "device": "cpu"})
    key = {"model": "encoder_mlm", "pretrain_seed": 1, "task": "tag", "method": "full"}
    key |= {"label_budget": "50", "finetune_seed": 2}
    row = key | machine | {"wall_time_s": 5, "latency_s": ""}
    write_table(Path("data/timings/finetune/tag/encoder_mlm.csv"), [row])
    shown = named(params)
    pretraining, trial = shown["pretrain encoder_mlm, seed 1"], shown[TRIAL]
    assert pretraining.costs == {"cost/wall_time_s": 6.0} and pretraining.duration_s == 6
    assert trial.costs == {"cost/wall_time_s": 5.0}
    assert trial.tags["hardware"] == "AMD EPYC" and trial.tags["threads"] == "2"


def test_recorded_effects_are_named_after_their_axis(params: Params) -> None:
    write_report(
        "",
        ("size", "2x64", "4x128", "f1", "", 0.02, "", "", ""),  # one seed has no interval
        ("size", "2x64", "4x128", "", "corpus", 0.5, "", "", ""),  # an interaction
        ("corpus", "all", "docs", "f1", "", 0.01, -0.01, 0.03, 0.4),
        ("corpus", "all", "more, twice", "f1", "", 0.05, 0.02, 0.08, 0.01),
    )
    effects = {name: value for name, value, _ in named(params)["smoke"].points}
    assert effects.pop("effect/size") == 0.02
    assert effects["effect/corpus/docs less all"] == 0.01
    assert effects["effect/corpus/more_ twice less all_low"] == 0.02
    assert len(effects) == 8


def test_recorded_identities_follow_the_results(params: Params) -> None:
    before = {record.name: record.identity for record in recorded(params)}
    path = Path("data/evaluated/tag/trials.csv")
    rows = read_texts(path)
    rows[1]["value"] = "0.5"
    write_table(path, rows)
    after = {record.name: record.identity for record in recorded(params)}
    assert [name for name in before if before[name] != after[name]] == [TRIAL]


def test_curves_of_several_rates_are_apart() -> None:
    measured = {"loss": 7.5, "lr": 0.1, "validation_loss": float("nan")}
    assert curves(measured, "mlm") == {"loss/mlm": 7.5, "lr": 0.1}
    assert curves(measured, "mlm", 0.1) == {"loss/mlm at 0.1": 7.5}
