"""What pretraining gained over from scratch, and what a point of it cost, by hand."""

from pathlib import Path

import pytest

from stages.reporting.comparison.costs import rows
from stages.reporting.comparison.gains import gain_rows, gains
from stages.reporting.comparison.results import Results, load
from stages.reporting.number_format import DASH
from tests.synthetic_study import RUNS, raw_params, write_study


@pytest.mark.slow
def test_a_point_took_the_pretraining_divided_by_what_was_gained(five_seeds: Results) -> None:
    found = gains(five_seeds)
    assert {gain.contrast.a.group for gain in found} == {"encoder_mlm", "encoder_scientific"}
    assert len([gain for gain in found if gain.gained]) > 3
    for gain in found:
        effect = 100 * gain.contrast.effect.value
        if gain.contrast.significant and effect > 0:
            assert gain.gained == pytest.approx(effect)
            assert gain.per_gain.wall_time_s == pytest.approx(61.5 / effect)
            assert gain.per_gain.joules == pytest.approx(1440 / effect)
            flops = gain.contrast.a.trials[0].lineage_flops
            assert flops and gain.per_gain.flops == pytest.approx(flops / effect)
        else:
            assert gain.gained is gain.per_gain.flops is gain.per_gain.joules is None


def test_what_is_not_significant_has_its_verdict_and_no_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    raw = raw_params({name: RUNS[name] for name in ("encoder_mlm", "encoder_scratch")})
    raw["finetune"]["seeds"] = [1]
    results = load(write_study(tmp_path, raw))
    assert gain_rows(results)
    for row in gain_rows(results):
        *_, gain, flops, time, energy = row.values()
        assert gain == "one trial: no interval"
        assert {flops, time, energy} == {DASH}
    assert all(row["gained"] == "" for row in rows(results) if row["run"] == "encoder_mlm")
