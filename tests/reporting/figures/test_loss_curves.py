"""Pictures of the validation loss against tokens or FLOPs of pretraining."""

from dataclasses import replace
from typing import Any

import pytest

from stages.core.keys import RunKey
from stages.findings.results import Results
from stages.reporting.figures import loss_curves
from stages.reporting.figures.loss_curves import Amount, Losses
from tests.synthetic_study import RUNS, further, public


def losses_of(results: Results) -> Losses:
    return Losses(results.groups, results.params.runs, results.progress)


def lines(results: Results, amount: Amount) -> dict[str, list[dict[str, Any]]]:
    """The points of each line."""
    data = loss_curves.picture(results.scores, losses_of(results), amount)["datasets"]
    points = [p for name, rows in data.items() if not name.startswith("ends of") for p in rows]
    return {line: [p for p in points if p["line"] == line] for line in {p["line"] for p in points}}


@pytest.mark.slow
def test_a_line_is_each_validation_of_a_run(results: Results) -> None:
    points_of = lines(results, "tokens")
    checkpoints = {RunKey(name, 1) for name in RUNS if "scratch" not in name}
    assert set(points_of) == {str(checkpoint) for checkpoint in checkpoints}
    for checkpoint in checkpoints:
        points, history = points_of[str(checkpoint)], results.progress[checkpoint].history
        steps = [s for s in history if s.validation_loss is not None]
        assert [(p["x"], p["y"]) for p in points] == [(s.tokens, s.validation_loss) for s in steps]
        assert len(points) == 5
        flops = lines(results, "flops")[str(checkpoint)]
        assert [point["x"] for point in flops] == [step.flops for step in steps]


@pytest.mark.slow
def test_a_run_that_goes_on_begins_where_its_parent_ended(results: Results) -> None:
    runs = dict(results.params.runs)
    runs["encoder_small"] = runs["encoder_small"].model_copy(update={"parent": "encoder_mlm"})
    continued = replace(results, params=results.params.model_copy(update={"runs": runs}))
    before, after = (
        lines(study, "tokens")["encoder_small, seed 1"] for study in (results, continued)
    )
    assert {b["x"] - a["x"] for a, b in zip(before, after, strict=True)} == {4_096_000}
    first = "encoder_mlm, seed 1"
    assert lines(continued, "tokens")[first] == lines(results, "tokens")[first]


def test_seeds_are_thin_lines_of_one_name(study_of) -> None:
    runs = {name: RUNS[name] for name in ("encoder_mlm", "decoder_causal")}
    runs["encoder_mlm"] = RUNS["encoder_mlm"] | {"seeds": [1, 2]}
    points_of = lines(study_of(runs), "tokens")
    assert {(p["run"], p["width"]) for p in points_of["encoder_mlm, seed 2"]} == {
        ("encoder_mlm", 1)
    }
    assert {(p["run"], p["width"]) for p in points_of["decoder_causal, seed 1"]} == {
        ("decoder_causal", 2)
    }


def test_where_nothing_was_pretrained_there_is_no_picture(study_of) -> None:
    runs = {name: RUNS[name] for name in ("encoder_scratch", "decoder_scratch")}
    results = study_of(runs)
    assert loss_curves.pictures(results.scores, losses_of(results)) == {}


def test_a_public_checkpoint_that_is_pretrained_further_begins_at_0(study_of) -> None:
    """Its earlier pretraining is unknown."""
    runs = {"bert": public("a/bert"), "adapted": further("a/bert", "mlm")}
    points_of = lines(study_of(runs), "tokens")
    assert points_of.keys() == {"adapted, seed 1"}
    assert min(point["x"] for point in points_of["adapted, seed 1"]) > 0


def test_comparable_runs_share_objective_text_and_tokenizer(results: Results) -> None:
    panels = [[group.name for group in groups] for groups in losses_of(results).comparable.values()]
    assert panels == [
        ["encoder_mlm", "encoder_small"],
        ["decoder_causal"],
        ["encoder_scientific"],
        ["encoder_deep_learning"],
    ]
