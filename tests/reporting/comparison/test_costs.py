"""What stands in reports/costs.csv and in the tables of cost, by hand."""

from dataclasses import replace
from typing import Any

import pytest

from stages.reporting.comparison.costs import (
    COLUMNS,
    energy,
    finetuning_rows,
    gain_rows,
    gains,
    grams,
    memory,
    milliseconds,
    notes,
    pretraining,
    pretraining_rows,
    rows,
    seconds,
    weights_rows,
)
from stages.reporting.comparison.results import Results, load
from stages.reporting.comparison.tables import KEYS
from tests.synthetic_study import HARDWARE, RUNS, further, public, raw_params, write_study

OLD = ["wall_time_s", "peak_memory_bytes", "pretrain_wall_time_s", "pretrain_peak_memory_bytes"]


def changed(results: Results, **changes: Any) -> Results:
    """Whose groups and contrasts are not those that were computed of the others."""
    return replace(results, **changes)


def test_new_columns_stand_behind_the_old_and_are_all_filled_somewhere(results: Results) -> None:
    assert COLUMNS[: len(KEYS) + 4] == [*KEYS, *OLD]
    found = rows(results)
    assert len(found) == len(results.finetuning_costs)
    for column in COLUMNS:
        assert any(row.get(column, "") != "" for row in found), column


def test_energy_is_that_of_the_cores_that_worked(results: Results) -> None:
    """2 s of a trial and 120 s of a pretraining, at 12 W and 473 g a kWh."""
    for row in rows(results):
        assert row["energy_j_estimate"] == 24
        assert row["co2e_g_estimate"] == pytest.approx(24 / 3.6e6 * 473, rel=0.01)
        assert row["pretrain_energy_j_estimate"] == 1440
        assert row["pretrain_co2e_g_estimate"] == pytest.approx(1440 / 3.6e6 * 473, rel=0.01)


def test_what_a_gpu_does_not_tell_is_unknown(results: Results) -> None:
    silent = {run: cost | {"gpu_energy_j": None} for run, cost in results.pretraining_costs.items()}
    results = changed(results, pretraining_costs=silent)
    for row in rows(results):
        assert (row["pretrain_energy_j_estimate"], row["pretrain_co2e_g_estimate"]) == ("", "")
    for row in pretraining_rows(results):
        assert row["energy, estimate"] == row["CO2e, estimate"] == "unknown"


def test_speed_stands_with_the_first_seed_alone(results: Results) -> None:
    for row in rows(results):
        first = row["finetune_seed"] == 1
        assert (row["latency_s"], row["texts_per_s"]) == ((0.004, 800.0) if first else ("", ""))
    row = finetuning_rows(results)[0]
    assert (row["a text alone"], row["texts a second"]) == ("4 ms", "800")


def test_weights_are_those_that_were_trained_and_else_the_checkpoint(results: Results) -> None:
    """Of 2,563,072 parameters in 4 bytes each; a probe adds 1,544 to them."""
    row = weights_rows(results)[0]
    assert row == {"run": "encoder_mlm", "full": "10.3 MB", "linear_probe": "10.3 MB"}
    found = {row["method"]: row["weights_bytes"] for row in rows(results)[:10]}
    assert found == {"full": 10_252_288, "linear_probe": 10_258_464}


def test_a_point_took_the_pretraining_divided_by_what_was_gained(results: Results) -> None:
    found = gains(results)
    assert {gain.contrast.a.group for gain in found} == {
        name for name in RUNS if "scratch" not in name and "small" not in name
    }
    assert len([gain for gain in found if gain.gained]) > 3
    for gain in found:
        effect = 100 * gain.contrast.effect.value
        if gain.contrast.verdict == "resolved" and effect > 0:
            assert gain.gained == pytest.approx(effect)
            assert gain.per_gain.wall_time_s == pytest.approx(61.5 / effect)
            assert gain.per_gain.joules == pytest.approx(1440 / effect)
            flops = gain.contrast.a.trials[0].lineage_flops
            assert flops and gain.per_gain.flops == pytest.approx(flops / effect)
        else:
            assert gain.gained is gain.per_gain.flops is gain.per_gain.joules is None


def test_what_is_not_resolved_is_called_so_and_has_no_number(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    raw = raw_params({name: RUNS[name] for name in ("encoder_mlm", "encoder_scratch")})
    raw["finetune"]["seeds"] = [1]
    results = load(write_study(tmp_path, raw))
    assert gain_rows(results)
    for row in gain_rows(results):
        assert row["over from scratch"] == "one trial: no interval"
        assert row["FLOPs"] == row["time"] == row["energy, estimate"] == "\N{EN DASH}"
    assert all(row["gained"] == "" for row in rows(results) if row["run"] == "encoder_mlm")


def test_what_a_run_came_from_took_its_time_too(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    more = RUNS["encoder_mlm"] | {"parent": "encoder_mlm", "corpus": "scientific"}
    names = ("encoder_mlm", "encoder_scratch")
    results = load(write_study(tmp_path, raw_params({n: RUNS[n] for n in names} | {"more": more})))
    group = {group.name: group for group in results.groups}
    alone, continued = (pretraining(results, group[name]) for name in ("encoder_mlm", "more"))
    assert (alone.wall_time_s, alone.joules) == (61.5, 1440)
    assert (continued.wall_time_s, continued.joules) == (2 * 61.5, 2 * 1440)


def test_several_machines_are_named_and_warned_of(results: Results) -> None:
    alone = " ".join(notes(results))
    assert f"`{HARDWARE}`" in alone and "not comparable" not in alone
    assert "1 thread, with up to 2 trials side by side" in alone and "estimate" in alone
    key = next(iter(results.finetuning_costs))
    other = replace(results.finetuning_costs[key], hardware="Another")
    both = changed(results, finetuning_costs=results.finetuning_costs | {key: other})
    noted = " ".join(notes(both))
    assert "`A processor & more`, `Another`" in noted and "not comparable" in noted


def test_amounts_in_words() -> None:
    assert [seconds(v) for v in (0.84, 61, 720, 12240)] == ["0.84 s", "61 s", "12 min", "3.4 h"]
    assert [milliseconds(v) for v in (0.0042, 0.095, 0.2)] == ["4.2 ms", "95 ms", "0.2 s"]
    assert [memory(v) for v in (400 * 2**20, 3 * 2**30)] == ["400 MiB", "3.0 GiB"]
    assert [energy(v) for v in (0, 3.6, 1440, 3.6e7)] == ["0 Wh", "1 mWh", "0.4 Wh", "10 kWh"]
    assert [grams(v) for v in (0.0012, 5.0, 1200)] == ["1.2 mg", "5 g", "1.2 kg"]


def test_what_a_public_checkpoint_took_is_unknown_and_loading_it_no_pretraining(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = {"bert": public("a/bert"), "adapted": further("a/bert", "mlm")}
    found = pretraining_rows(load(write_study(tmp_path, raw_params(runs))))
    published, adapted = (set(list(row.values())[2:]) for row in found)
    assert published == {"unknown"} and "unknown" not in adapted
