import json

import pytest

from stages.core import paths
from stages.core.params import Params
from stages.evaluation.records import read_texts
from stages.tracking.records import at_rate
from stages.tracking.study import recorded
from tests.tracking.tracked_study import write_table

pytestmark = pytest.mark.slow


def test_recorded_costs_are_measured_and_an_estimate_of_energy(params: Params) -> None:
    """10 s and 3 s of one core, at 12 W; only the first seed has a latency."""
    timings = paths.TIMINGS
    (timings / "pretrain/encoder_mlm").mkdir(parents=True)
    measured = {"wall_time_s": 6.0, "processor_time_s": 10.0, "gpu_energy_j": 0.0, "device": "cpu"}
    (timings / "pretrain/encoder_mlm/1.json").write_text(json.dumps(measured))
    key = {"run": "encoder_mlm", "pretrain_seed": 1, "task": "tag", "method": "full"}
    key |= {"label_budget": "50", "gpu_energy_j": 0}
    first = {"finetune_seed": 1, "wall_time_s": 3, "processor_time_s": 2, "latency_s": 0.004}
    second = {"finetune_seed": 2, "wall_time_s": 5, "processor_time_s": 4, "latency_s": ""}
    rows = [key | first, key | second]
    (timings / "finetune/tag").mkdir(parents=True)
    write_table(timings / "finetune/tag/encoder_mlm.csv", rows)
    costs = {record.name: record.costs for record in recorded(params)}
    pretraining, trials = costs["encoder_mlm seed 1"], costs["encoder_mlm full tag 50"]
    assert pretraining.items() >= {"cost/wall_time_s": 6.0, "cost/energy_j_estimate": 120.0}.items()
    assert trials.items() >= {"cost/wall_time_s": 4.0, "cost/latency_s": 0.004}.items()
    assert trials["cost/energy_j_estimate"] == 36
    assert trials["cost/co2e_g_estimate"] == pytest.approx(36 / 3.6e6 * 473)
    assert costs["encoder_mlm full tag 50 seed 1, fine-tuning seed 1"]["cost/wall_time_s"] == 3
    assert "cost/latency_s" not in costs["encoder_mlm full tag 50 seed 1, fine-tuning seed 2"]
    assert costs["decoder_causal seed 1"] == {}


def test_recorded_curves_of_other_rates_have_names_of_their_own(
    params: Params,
) -> None:
    """As they are mirrored while it trains; a step that diverged has no loss to draw."""
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
    write_table(path, [row | {"pretrain_tokens": ""} for row in read_texts(path)])
    points = next(r.points for r in recorded(params) if r.name == "encoder_mlm full tag 50")
    keys = {key for key, *_ in points}
    assert "cost/pretrain_tokens" not in keys and "cost/num_params" in keys
