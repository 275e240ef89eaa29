import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stages.core.params import Params
from stages.evaluation.records import ScoredTrial
from stages.findings.costs import cells_with_flops
from stages.findings.results import Results
from stages.findings.sizes import cells_with_sizes, error, power_laws
from stages.reporting.figures import gallery, trade_offs
from stages.reporting.figures.style import PAPER
from stages.reporting.words import costs
from tests.synthetic_study import RUNS, raw_params

PLACE = ("type", "200")


def with_trials(results: Results, change: Callable[[ScoredTrial], ScoredTrial]) -> Results:
    return replace(results, trials=[change(trial) for trial in results.trials])


def test_cost_is_of_the_lineage_and_the_fine_tuning(results: Results) -> None:
    rows = trade_offs.cost(results.scores, *PLACE)["datasets"]["marks"]
    assert len(rows) == 7 * 2
    row_of = {(row["run"], row["method"]): row for row in rows}
    for trial in results.trials:
        if trial.task == "type" and trial.run in RUNS:
            assert trial.lineage_flops is not None
            row = row_of[trial.run, trial.method]
            assert row["x"] == trial.lineage_flops + trial.finetune_flops
            assert (row["fill"] == PAPER) == ("scratch" in trial.run)


def beside_baselines_of(results: Results, value: float) -> Results:
    """Sets the score of all trials of baselines, slightly higher for ``tfidf``."""

    def scored(trial: ScoredTrial) -> ScoredTrial:
        changed = replace(trial, value=value + 0.001 * (trial.run == "tfidf"))
        return trial if trial.run in RUNS else changed

    return with_trials(results, scored)


def test_no_run_is_on_the_front_that_a_baseline_beats(results: Results) -> None:
    """Baselines cost less than any run."""
    merits = sorted(cell.merit for cell, _ in cells_with_flops(results.scores, *PLACE))
    for value, reached in ((0.0, True), (merits[-2], True), (0.99, False)):
        beside = beside_baselines_of(results, value)
        cells = cells_with_flops(beside.scores, *PLACE)
        front = trade_offs.front_beside_baselines(beside.scores, *PLACE)
        assert bool(front) == reached and all(cells[i][0].merit > value for i in front)
        key = trade_offs.front_key(beside.scores, *PLACE)
        assert key[0].startswith("tfidf, the best classical baseline") and len(key) > len(front)
        data = trade_offs.cost(beside.scores, *PLACE)["datasets"]
        assert [row["run"] for row in data["baselines"]] == ["tfidf", "majority"]


def test_the_line_goes_up_from_the_cheapest_and_on_to_the_dearest(results: Results) -> None:
    data = trade_offs.cost(beside_baselines_of(results, 0.0).scores, *PLACE)["datasets"]
    xs, scores = ([row[key] for row in data["front"]] for key in ("x", "score"))
    assert xs == sorted(xs) and xs[0] == min(row["x"] for row in data["marks"])
    assert xs[-1] == max(row["x"] for row in data["marks"])
    assert scores == sorted(scores) and scores[-1] == max(row["score"] for row in data["marks"])
    numbered = [row for row in data["marks"] if row["number"]]
    assert sorted(row["score"] for row in numbered) == scores[:-1]
    assert data["baseline"][0]["run"] == "tfidf"  # the better of two


def test_where_lower_is_better_the_front_goes_down(results: Results) -> None:
    lower = with_trials(
        beside_baselines_of(results, 0.99), lambda trial: replace(trial, metric="bits_per_byte")
    )
    data = trade_offs.cost(lower.scores, *PLACE)["datasets"]
    scores = [row["score"] for row in data["front"]]
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] == min(row["score"] for row in data["marks"])
    assert data["baseline"][0]["run"] == "majority"


def test_what_is_unknown_or_nothing_is_left_out_and_named(results: Results) -> None:
    def changed(trial: ScoredTrial) -> ScoredTrial:
        if trial.run == "encoder_mlm":
            return replace(trial, lineage_flops=None)
        nothing = trial.run == "decoder_scratch" and trial.method == "linear_probe"
        return replace(trial, finetune_flops=0) if nothing else trial

    without = with_trials(results, changed)
    drawn = {(cell.group, cell.method) for cell, _ in cells_with_flops(without.scores, *PLACE)}
    assert len(drawn) == 7 * 2 - 3
    assert ("decoder_scratch", "full") in drawn and ("encoder_mlm", "full") not in drawn
    unknown, nothing = costs.left_out(without.scores)
    assert "unknown: `encoder_mlm`." in unknown
    assert "nothing was trained: `decoder_scratch` with `linear_probe`." in nothing


def test_equal_costs_and_equal_sizes_make_no_picture(results: Results) -> None:
    def names(changed: Results) -> set[str]:
        return {name.split("_")[0] for name in trade_offs.pictures(changed.scores, *PLACE)}

    assert names(results) == {"cost", "parameters"}
    same_size = with_trials(results, lambda trial: replace(trial, num_params=1_000_000))
    assert names(same_size) == {"cost"}
    heads = with_trials(results, lambda t: replace(t, num_params=1_000_000 + len(t.architecture)))
    assert names(heads) == {"cost"}  # nothing to see on the axis
    one_cost = with_trials(results, lambda t: replace(t, lineage_flops=7, finetune_flops=3))
    assert names(one_cost) == {"parameters"}
    unknown = with_trials(results, lambda trial: replace(trial, lineage_flops=None))
    assert names(unknown) == {"parameters"}


def test_size_has_a_mark_for_each_pretrained_run(results: Results) -> None:
    """The method trains most of the weights, even if another scores better."""

    def changed(trial: ScoredTrial) -> ScoredTrial:
        return replace(trial, value=0.9) if trial.method == "linear_probe" else trial

    rows = trade_offs.parameters(with_trials(results, changed).scores, *PLACE)["datasets"]["marks"]
    assert {row["run"] for row in rows} == {name for name in RUNS if "scratch" not in name}
    assert {row["method"] for row in rows} == {"full"}
    probed = [trial for trial in results.trials if trial.method != "full"]
    raw = raw_params()
    raw["finetune"]["methods"].pop("full")
    alone = replace(results, params=Params(**raw), trials=probed)
    rows = trade_offs.parameters(alone.scores, *PLACE)["datasets"]["marks"]
    assert len(rows) == 5 and {row["method"] for row in rows} == {"linear_probe"}


def test_two_sizes_have_no_law(results: Results) -> None:
    assert power_laws(cells_with_sizes(results.scores, *PLACE), results.scores.group_of) == []
    spec = trade_offs.parameters(results.scores, *PLACE)
    assert spec["datasets"]["laws"] == [] and "error =" not in str(spec["title"])


@pytest.mark.parametrize("metric", ["macro_f1", "bits_per_byte"])
def test_three_sizes_of_one_kind_have_the_law_they_follow(
    three_sizes: Results, metric: str
) -> None:
    """Only one training set has a law; the others have one size each."""

    def lawful(trial: ScoredTrial) -> ScoredTrial:
        seed = trial.finetune_seed - 3  # -2 to 2
        exponent = 0.15 + 0.001 * seed
        lost = 3 * (1 + 0.01 * seed) * max(trial.num_params, 1) ** -exponent
        return replace(trial, metric=metric, value=error(metric, lost))

    results = with_trials(three_sizes, lawful)
    ((group, law, sizes),) = power_laws(
        cells_with_sizes(results.scores, *PLACE), results.scores.group_of
    )
    assert group.name == "encoder_mlm" and sorted(sizes) == [288_000, 812_544, 2_563_072]
    assert law.exponent.value == pytest.approx(0.15)
    assert law.factor == pytest.approx(3, rel=1e-3)
    spec = trade_offs.parameters(results.scores, *PLACE)
    curve = spec["datasets"]["laws"]
    assert curve[0]["x"] == pytest.approx(288_000) and curve[-1]["x"] == pytest.approx(2_563_072)
    marks = {row["run"]: row["score"] for row in spec["datasets"]["marks"]}
    for row, name in ((curve[0], "tiny"), (curve[-1], "encoder_mlm")):
        assert row["score"] == pytest.approx(marks[name], rel=1e-3)
        assert row["low"] < row["score"] < row["high"]
    text = "N^\N{MINUS SIGN}b, b = 0.150 (95% interval 0.148 to 0.152)"
    assert f"encoder, mlm on all: error = 3 {text}" in spec["title"]["subtitle"]


def test_they_can_be_drawn(three_sizes: Results, tmp_path: Path) -> None:
    study = beside_baselines_of(three_sizes, 0.0)
    for name, picture in trade_offs.pictures(study.scores, *PLACE).items():
        svg = gallery.draw(picture, svg=tmp_path / f"{name}.svg", png=tmp_path / f"{name}.png")
        assert re.search(r">1 (encoder_scratch, linear_probe|tiny, full): [\d.]+</", svg)
        assert "NaN" not in svg and "undefined" not in svg
