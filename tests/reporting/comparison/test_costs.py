"""What stands in reports/costs.csv and in the tables of cost, by hand."""

from dataclasses import replace
from typing import Any

import pytest

from stages.reporting.comparison.costs import COLUMNS, finetuning_rows, notes, rows, weights_rows
from stages.reporting.comparison.pretraining_costs import pretraining_rows
from stages.reporting.comparison.results import Results
from stages.reporting.comparison.tables import KEYS
from tests.synthetic_study import HARDWARE

OLD = ["wall_time_s", "peak_memory_bytes", "pretrain_wall_time_s", "pretrain_peak_memory_bytes"]


def changed(results: Results, **changes: Any) -> Results:
    """Whose groups and contrasts are not those that were computed of the others."""
    return replace(results, **changes)


@pytest.mark.slow
def test_new_columns_stand_behind_the_old_and_are_all_filled_somewhere(
    five_seeds: Results,
) -> None:
    assert COLUMNS[: len(KEYS) + 4] == [*KEYS, *OLD]
    found = rows(five_seeds)
    assert len(found) == len(five_seeds.finetuning_costs)
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
    assert (row["latency"], row["texts/s"]) == ("4 ms", "800")


def test_weights_are_those_that_were_trained_and_else_the_checkpoint(results: Results) -> None:
    """Of 2,563,072 parameters in 4 bytes each; a probe adds 1,544 to them."""
    row = weights_rows(results)[0]
    assert row == {"run": "encoder_mlm", "full": "10.3 MB", "linear_probe": "10.3 MB"}
    found = {row["method"]: row["weights_bytes"] for row in rows(results)[:10]}
    assert found == {"full": 10_252_288, "linear_probe": 10_258_464}


def test_several_machines_are_named_and_warned_of(results: Results) -> None:
    alone = " ".join(notes(results))
    assert f"`{HARDWARE}`" in alone and "not comparable" not in alone
    assert "1 thread, with up to 2 trials side by side" in alone and "estimate" in alone
    key = next(iter(results.finetuning_costs))
    other = replace(results.finetuning_costs[key], hardware="Another")
    both = changed(results, finetuning_costs=results.finetuning_costs | {key: other})
    noted = " ".join(notes(both))
    assert "`A processor & more`, `Another`" in noted and "not comparable" in noted
