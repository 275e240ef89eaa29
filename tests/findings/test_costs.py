"""Values in reports/costs.csv and in the tables of cost, checked by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.findings.costs import gains, pareto_front
from stages.findings.results import Results
from stages.reporting.formats import DASH
from stages.reporting.words.costs import (
    finetuning_rows,
    gain_rows,
    notes,
    pretraining_rows,
    weights_rows,
)
from stages.reporting.words.files import COLUMNS, KEYS, cost_rows
from tests.synthetic_study import HARDWARE, RUNS, further, public, raw_params

OLD = ["wall_time_s", "peak_memory_bytes", "pretrain_wall_time_s", "pretrain_peak_memory_bytes"]


def pretraining_of(results: Results) -> list[dict[str, str]]:
    return pretraining_rows(results.groups, results.trials, results.costs)


def notes_of(results: Results) -> list[str]:
    return notes(results.costs, results.estimates, results.contrasts, results.trials)


@pytest.mark.slow
def test_new_columns_stand_behind_the_old_and_are_all_filled_somewhere(
    five_seeds: Results,
) -> None:
    assert COLUMNS["costs"][: len(KEYS) + 4] == [*KEYS, *OLD]
    rows = cost_rows(five_seeds)
    assert len(rows) == len(five_seeds.finetuning_costs)
    for column in COLUMNS["costs"]:
        assert any(row.get(column, "") != "" for row in rows), column


def test_energy_is_that_of_the_cores_that_worked(results: Results) -> None:
    """2 s of a trial and 120 s of a pretraining, at 12 W and 473 g a kWh."""
    rows = [*cost_rows(results)]
    assert rows
    for row in rows:
        assert row["energy_j_estimate"] == 24
        assert row["co2e_g_estimate"] == pytest.approx(24 / 3.6e6 * 473, rel=0.01)
        assert row["pretrain_energy_j_estimate"] == 1440
        assert row["pretrain_co2e_g_estimate"] == pytest.approx(1440 / 3.6e6 * 473, rel=0.01)


def test_what_a_gpu_does_not_tell_is_unknown(results: Results) -> None:
    silent = {run: cost | {"gpu_energy_j": None} for run, cost in results.pretraining_costs.items()}
    changed = replace(results, pretraining_costs=silent)
    for row in cost_rows(changed):
        assert (row["pretrain_energy_j_estimate"], row["pretrain_co2e_g_estimate"]) == ("", "")
    for shown in pretraining_of(changed):
        assert shown["energy, estimate"] == shown["CO2e, estimate"] == "unknown"


def test_speed_stands_with_the_first_seed_alone(results: Results) -> None:
    for row in cost_rows(results):
        first = row["finetune_seed"] == 1
        assert (row["latency_s"], row["texts_per_s"]) == ((0.004, 800.0) if first else ("", ""))
    shown = finetuning_rows(results.scores, results.costs)[0]
    assert (shown["latency"], shown["texts/s"]) == ("4 ms", "800")


def test_weights_are_those_that_were_trained_and_else_the_checkpoint(results: Results) -> None:
    """The model has 2,563,072 parameters of 4 bytes; a probe adds 1,544."""
    row = weights_rows(results.scores)[0]
    assert row == {"run": "encoder_mlm", "full": "10.3 MB", "linear_probe": "10.3 MB"}
    sizes = {row["method"]: row["weights_bytes"] for row in cost_rows(results)[:10]}
    assert sizes == {"full": 10_252_288, "linear_probe": 10_258_464}


def test_several_machines_are_named_and_warned_of(results: Results) -> None:
    alone = " ".join(notes_of(results))
    assert f"`{HARDWARE}`" in alone and "not comparable" not in alone
    assert "1 thread, with up to 2 trials side by side" in alone and "estimate" in alone
    assert "1.5 s on average, and 32 s together" in alone  # estimates of 3 tasks and 7 runs
    key = next(iter(results.finetuning_costs))
    other = replace(results.finetuning_costs[key], hardware="Another")
    both = replace(results, finetuning_costs=results.finetuning_costs | {key: other})
    noted = " ".join(notes_of(both))
    assert "`A processor & more`, `Another`" in noted and "not comparable" in noted


def test_what_would_narrow_the_intervals_is_priced_by_time(five_seeds: Results) -> None:
    (text,) = [text for text in notes_of(five_seeds) if "per hour" in text]
    hours = (2.5 * len(five_seeds.finetuning_costs) + 61.5 * 20) / 3600
    assert f"for {60 * hours:.3g} min" in text


def test_the_cost_of_a_run_includes_its_parent(study_of) -> None:
    """The parent's mask may differ."""
    later = RUNS["encoder_mlm"] | {"parent": "decoder_causal"}
    names = ("encoder_mlm", "decoder_causal", "encoder_scratch")
    results = study_of({n: RUNS[n] for n in names} | {"later": later})
    for name, number in (("encoder_mlm", 1), ("later", 2)):
        cost = results.costs.of_lineage(results.scores.group_of[name])
        assert (cost.wall_time_s, cost.joules) == (number * 61.5, number * 1440)
    axes = {frozenset((c.a.group, c.b.group)): c.axis for c in results.contrasts}
    assert axes[frozenset(("later", "encoder_mlm"))] == "parent"


def test_what_a_public_checkpoint_took_is_unknown_and_loading_it_no_pretraining(study_of) -> None:
    runs = {"bert": public("a/bert"), "adapted": further("a/bert", "mlm")}
    rows = pretraining_of(study_of(runs))
    published, adapted = (set(list(row.values())[2:]) for row in rows)
    assert published == {"unknown"} and "unknown" not in adapted


@pytest.mark.slow
def test_a_point_took_the_pretraining_divided_by_what_was_gained(five_seeds: Results) -> None:
    all_gains = gains(five_seeds.contrasts, five_seeds.groups, five_seeds.costs)
    assert {gain.contrast.a.group for gain in all_gains} == {"encoder_mlm", "encoder_scientific"}
    assert len([gain for gain in all_gains if gain.gained]) > 3
    for gain in all_gains:
        effect, cost = 100 * gain.contrast.effect.value, gain.cost_per_unit
        if gain.contrast.significant and effect > 0:
            assert gain.gained == pytest.approx(effect)
            assert cost.wall_time_s == pytest.approx(61.5 / effect)
            assert cost.joules == pytest.approx(1440 / effect)
            flops = gain.contrast.a.trials[0].lineage_flops
            assert flops and cost.flops == pytest.approx(flops / effect)
        else:
            assert gain.gained is cost.flops is cost.joules is None


def test_what_is_not_significant_has_its_verdict_and_no_cost(study_of) -> None:
    raw = raw_params({name: RUNS[name] for name in ("encoder_mlm", "encoder_scratch")})
    raw["finetune"]["seeds"] = [1]
    results = study_of(raw=raw)
    rows = gain_rows(gains(results.contrasts, results.groups, results.costs))
    assert {tuple(row.values())[3:] for row in rows} == {("one trial: no interval", *3 * [DASH])}
    assert all(row["gained"] == "" for row in cost_rows(results) if row["run"] == "encoder_mlm")


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), max_size=12))
def test_pareto_front_is_what_nothing_beats(points: list[tuple[int, int]]) -> None:
    """No other point costs as much or less and is as good or better, by brute force."""
    unbeaten = {
        (cost, merit)
        for cost, merit in points
        if not any(c <= cost and m >= merit and (c, m) != (cost, merit) for c, m in points)
    }
    front = pareto_front(points)
    assert [points[i] for i in front] == sorted(unbeaten)  # equal points count once


def test_pareto_front_has_the_first_of_equals() -> None:
    assert pareto_front([(2, 5), (1, 3), (2, 5), (1, 3)]) == [1, 0]
