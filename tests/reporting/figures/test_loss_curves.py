"""Pictures of the validation loss against what pretraining took."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stages.reporting.comparison.results import Results, load
from stages.reporting.figures import loss_curves
from stages.reporting.figures.loss_curves import Amount, comparable, losses
from tests.synthetic_study import RUNS, further, public, raw_params, run, write_study


def lines(results: Results, amount: Amount) -> dict[str, list[dict[str, Any]]]:
    """The points of each line."""
    data = losses(results, amount)["datasets"]
    points = [p for name, rows in data.items() if not name.startswith("ends of") for p in rows]
    return {line: [p for p in points if p["line"] == line] for line in {p["line"] for p in points}}


@pytest.mark.slow
def test_a_line_is_each_validation_of_a_run(results: Results) -> None:
    found = lines(results, "tokens")
    assert set(found) == {name for name in RUNS if "scratch" not in name}
    for name, points in found.items():
        steps = [s for s in results.progress[name].history if s.validation_loss is not None]
        assert [(p["x"], p["y"]) for p in points] == [(s.tokens, s.validation_loss) for s in steps]
        assert len(points) == 5
        flops = lines(results, "flops")[name]
        assert [point["x"] for point in flops] == [step.flops for step in steps]


@pytest.mark.slow
def test_a_run_that_goes_on_begins_where_its_parent_ended(results: Results) -> None:
    runs = dict(results.params.pretrain)
    runs["encoder_small"] = runs["encoder_small"].model_copy(update={"parent": "encoder_mlm"})
    continued = replace(results, params=results.params.model_copy(update={"pretrain": runs}))
    before, after = (lines(each, "tokens")["encoder_small"] for each in (results, continued))
    assert {b["x"] - a["x"] for a, b in zip(before, after, strict=True)} == {4_096_000}
    assert lines(continued, "tokens")["encoder_mlm"] == lines(results, "tokens")["encoder_mlm"]


def test_seeds_are_thin_lines_of_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = {name: RUNS[name] for name in ("encoder_mlm", "decoder_causal")}
    runs["encoder_again"] = run("encoder", "mlm", seed=2)
    found = lines(load(write_study(tmp_path, raw_params(runs))), "tokens")
    assert {(p["run"], p["width"]) for p in found["encoder_again"]} == {("encoder_mlm", 1)}
    assert {(p["run"], p["width"]) for p in found["decoder_causal"]} == {("decoder_causal", 2)}


def test_where_nothing_was_pretrained_there_is_no_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = {name: RUNS[name] for name in ("encoder_scratch", "decoder_scratch")}
    assert loss_curves.pictures(load(write_study(tmp_path, raw_params(runs)))) == {}


def test_a_public_checkpoint_that_is_pretrained_further_begins_at_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had seen before nobody knows."""
    monkeypatch.chdir(tmp_path)
    runs = {"bert": public("a/bert"), "adapted": further("a/bert", "mlm")}
    found = lines(load(write_study(tmp_path, raw_params(runs))), "tokens")
    assert found.keys() == {"adapted"}
    assert min(point["x"] for point in found["adapted"]) > 0


def test_comparable_runs_share_objective_text_and_tokenizer(results: Results) -> None:
    panels = [[group.name for group in groups] for groups in comparable(results).values()]
    assert panels == [
        ["encoder_mlm", "encoder_small"],
        ["decoder_causal"],
        ["encoder_scientific"],
        ["encoder_deep_learning"],
    ]
