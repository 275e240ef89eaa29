import json

import pytest

from stages.core import paths
from stages.core.keys import RunKey
from stages.core.params import HUB, NONE, Params
from stages.evaluation.records import read_texts
from stages.tracking.records import at_rate, objective_tags, pretraining_record
from stages.tracking.study import recorded
from tests.tracking.tracked_study import SETTINGS, write_table, write_timings

pytestmark = pytest.mark.slow


def test_recorded_costs_are_measured_and_an_estimate_of_energy(params: Params) -> None:
    """10 s and 3 s of one core, at 12 W; only the first seed has a latency."""
    write_timings()
    costs = {record.name: record.costs for record in recorded(params)}
    pretraining, trials = costs["encoder_mlm seed 1"], costs["encoder_mlm full tag 50"]
    assert pretraining.items() >= {"cost/wall_time_s": 6.0, "cost/energy_j_estimate": 120.0}.items()
    assert trials.items() >= {"cost/wall_time_s": 4.0, "cost/latency_s": 0.004}.items()
    assert trials["cost/energy_j_estimate"] == 36
    assert trials["cost/peak_memory_bytes"] == 15  # the largest, as the report says
    assert "cost/gpu_energy_j" not in {**pretraining, **trials}  # there is no GPU
    assert trials["cost/co2e_g_estimate"] == pytest.approx(36 / 3.6e6 * 473)
    assert costs["encoder_mlm full tag 50 seed 1, fine-tuning seed 1"]["cost/wall_time_s"] == 3
    assert "cost/latency_s" not in costs["encoder_mlm full tag 50 seed 1, fine-tuning seed 2"]
    assert costs["decoder_causal seed 1"] == {}


def test_recorded_curves_of_other_rates_have_names_of_their_own(
    params: Params,
) -> None:
    """The tracker mirrors these names during training; a diverged step has no loss."""
    rows = [
        {"rate": 0.1, "kept": 0, "step": 1, "loss": 7.5, "lr": 0.1, "validation_loss": ""},
        {"rate": 0.1, "kept": 0, "step": 2, "loss": "nan", "lr": 0.1, "validation_loss": ""},
        {"rate": 0.003, "kept": 1, "step": 8, "loss": 6.0, "lr": 0.003, "validation_loss": 5.5},
    ]
    write_table(paths.PROGRESS / "rates/encoder_mlm/1.csv", rows)
    points_of = {record.name: record.points for record in recorded(params)}
    other, points = (points_of[f"{run} seed 1"] for run in ("decoder_causal", "encoder_mlm"))
    mirrored = at_rate({"loss": 7.5, "lr": 0.1}, 0.1)
    assert mirrored == {"loss_at_0.1": 7.5}
    assert [p for p in points if "_at_" in p[0]] == [
        ("train/loss_at_0.1", 7.5, 1),
        ("train/loss_at_0.003", 6.0, 8),
        ("train/validation_loss_at_0.003", 5.5, 8),
    ]
    assert [p for p in points if "_at_" not in p[0]] == other


def test_recorded_points_have_the_kept_rate_and_its_curve(params: Params) -> None:
    path = paths.PRETRAINED / "encoder_mlm/1/metrics.json"
    account = json.loads(path.read_text())
    path.write_text(json.dumps(account | {"lr": 0.003, "rates": {"0.003": 5.5, "0.1": None}}))
    points = next(r.points for r in recorded(params) if r.name == "encoder_mlm seed 1")
    assert ("train/kept_lr", 0.003, 0) in points
    assert [p for p in points if p[0] == "train/lr"] == [
        ("train/lr", 0.003, step) for step in range(1, 9)
    ]


def test_recorded_points_lack_an_amount_that_is_unknown(params: Params) -> None:
    path = paths.EVALUATED / "tag/trials.csv"
    amounts = {"pretrain_tokens": "", "finetune_flops": 0, "num_epochs": 0}
    write_table(path, [row | amounts for row in read_texts(path)])
    baseline = next(r.points for r in recorded(params) if r.name == "tfidf classical tag 50")
    assert {"cost/num_params", "train/num_tries"} <= {key for key, *_ in baseline}
    assert all(value for _, value, _ in baseline)  # zeros are left out
    points = next(r.points for r in recorded(params) if r.name == "encoder_mlm full tag 50")
    assert ("cost/finetune_flops", 0, 0) in points
    keys = {key for key, *_ in points}
    assert "cost/pretrain_tokens" not in keys and "cost/num_params" in keys


def test_recorded_losses_and_rates_have_one_name(params: Params) -> None:
    """`train/loss` ends with the last loss, and `train/kept_lr` is the rate that was chosen."""
    records = {record.name: record for record in recorded(params)}
    trial = records["encoder_mlm full tag 50 seed 1, fine-tuning seed 2"].points
    assert [p for p in trial if p[0] == "train/loss"] == [
        ("train/loss", 2 / epoch, epoch) for epoch in (1, 2, 3)
    ]
    assert ("train/kept_lr", 1.0, 0) in trial
    keys = {key for record in records.values() for key, *_ in record.points}
    assert not keys & {"train/train_loss", "train/last_train_loss"}
    drawn = {step for key, _, step in trial if key == "train/lr"}
    assert not drawn


@pytest.mark.parametrize("learnt", [(NONE, NONE), (HUB, "data/checkpoints/bert")])
def test_pretraining_record_of_a_run_that_does_not_train_has_no_training_settings(
    learnt: tuple[str, str],
) -> None:
    tags = {"architecture": "encoder", **objective_tags(*learnt)}
    settings = SETTINGS | {"objective": {"name": NONE}, "corpus": NONE}
    params = pretraining_record(RunKey("bert", 1), "a", tags=tags, settings=settings).params
    assert not any(key.startswith("training.") for key in params)
    assert (params["objective.name"], params["corpus"]) == learnt
    assert (tags["objective"], tags["corpus"]) == learnt
