import json

import pytest

from stages.core import paths
from stages.core.params import Params
from stages.tracking import records
from tests.tracking.tracked_study import write_table

pytestmark = pytest.mark.slow


def test_costs_are_those_that_were_measured_and_an_estimate_of_energy(params: Params) -> None:
    """Of 10 s and 3 s of one core, at 12 W; what only one seed measured is its own."""
    timings = paths.TIMINGS
    (timings / "pretrain").mkdir(parents=True)
    measured = {"wall_time_s": 6.0, "processor_time_s": 10.0, "gpu_energy_j": 0.0, "device": "cpu"}
    (timings / "pretrain/encoder_mlm.json").write_text(json.dumps(measured))
    key = {"method": "full", "label_budget": "50"}
    rows = [
        key | {"wall_time_s": 3, "processor_time_s": 2, "gpu_energy_j": 0, "latency_s": 0.004},
        key | {"wall_time_s": 5, "processor_time_s": 4, "gpu_energy_j": 0, "latency_s": ""},
    ]
    (timings / "finetune/tag").mkdir(parents=True)
    write_table(timings / "finetune/tag/encoder_mlm.csv", rows)
    found = {record.name: record.costs for record in records.recorded(params)}
    pretraining, trials = found["encoder_mlm"], found["encoder_mlm/tag/full/50"]
    assert pretraining.items() >= {"wall_time_s": 6.0, "energy_j_estimate": 120.0}.items()
    assert trials.items() >= {"wall_time_s": 4.0, "latency_s": 0.004}.items()
    assert trials["energy_j_estimate"] == 36
    assert trials["co2e_g_estimate"] == pytest.approx(36 / 3.6e6 * 473)
    assert found["decoder_causal"] == {}
