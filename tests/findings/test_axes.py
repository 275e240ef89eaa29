"""Pairs compared on a task, by the part of each model that the task uses."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stages.core.params import Params
from stages.core.study_file import load
from stages.evaluation.records import ScoredTrial
from stages.findings.axes import Confound, left_out, levels_of, pairs
from stages.findings.groups import Group, Used, groups
from stages.findings.results import Results
from stages.matching.budget import matched
from stages.planning.pretraining_costs import backbone_of, num_weights
from stages.reporting.words.appendix import comparisons_not_made
from tests.project import ROOT
from tests.synthetic_study import RUNS, _baseline, run

SYSTEMS = ROOT / "studies" / "systems.yaml"
HALVES = ("t5", "bart", "encoder_decoder_scratch")


@pytest.fixture
def systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Params]:
    """Loads studies/systems.yaml at a model width."""
    monkeypatch.chdir(ROOT)

    def at(d_model: int) -> Params:
        path = tmp_path / f"{d_model}.yaml"
        text, times = re.subn(r"(d_model: &d_model) \d+\b", rf"\1 {d_model}", SYSTEMS.read_text())
        assert times == 1
        path.write_text(text)
        return matched(load(path))

    return at


def used_by(params: Params, *, with_head: bool) -> tuple[list[Group], dict[str, Used]]:
    """The groups of a study and the part of each model, built without weights, that a task uses."""
    trials: list[ScoredTrial] = []
    for key, entry in params.runs.items():
        backbone = backbone_of(entry, params.tokenizers)
        assert backbone is not None
        whole = num_weights(backbone)
        if with_head:
            backbone.drop_output_layers()
        about = {
            "run": key,
            "architecture": backbone.architecture,
            "num_params": num_weights(backbone),
            "num_pretrained_params": whole,
            "used_architecture": backbone.used_architecture,
            "design": backbone.design,
            "method": "full",
        }
        trials.append(replace(_baseline("type", "majority", "200", 1, 1, 0.0), **about))
    of_study = groups(params.runs, params.tokenizers, trials, rates={}, likeness={})
    return of_study, Used.by_group(of_study, trials, task="type", method="full")


@pytest.mark.slow
@pytest.mark.parametrize("d_model", [128, 768])
def test_encoder_decoders_are_compared_at_every_size(d_model, systems) -> None:
    """Tasks with a head compare only their encoders, which are as large as encoder models. Tasks
    without a head compare whole models, unless two stacks outweigh the embeddings."""
    params = systems(d_model)
    of_study, used = used_by(params, with_head=True)
    made = {(a.name, b.name) for axis, a, b in pairs(of_study, used) if axis == "architecture"}
    of_halves = {pair for pair in made if {*pair} & {*HALVES}}
    for half in ("t5", "bart"):
        for other in ("bert", "gpt", "spanbert", "prefix_lm"):
            assert (other, half) in of_halves
    assert used["t5"].num_params == used["bert"].num_params
    of_study, used = used_by(params, with_head=False)
    made = {(a.name, b.name) for axis, a, b in pairs(of_study, used) if axis == "architecture"}
    assert (("bert", "t5") in made) == (d_model == 128)


def test_two_runs_from_scratch_that_are_one_model_are_not_compared(systems) -> None:
    """Both use one encoder with a head; whole models differ. A decoder always differs."""
    params = systems(128)
    of_study, used = used_by(params, with_head=True)
    scratch = [g for g in of_study if g.name.endswith("_scratch") and g.name != "student_scratch"]
    one = ("encoder_scratch", "encoder_decoder_scratch")
    made = {(a.name, b.name) for _, a, b in pairs(scratch, used)}
    assert one not in made
    assert {("encoder_scratch", "decoder_scratch"), ("decoder_scratch", one[1])} <= made
    (same,) = [each for each in left_out(scratch, used) if each.axis == "architecture"]
    assert (same.a.name, same.b.name) == one and "same model" in same.reason
    _, whole = used_by(params, with_head=False)
    assert one in {(a.name, b.name) for _, a, b in pairs(scratch, whole)}


def test_a_level_says_which_part_of_a_model_a_task_uses(systems) -> None:
    params = systems(128)
    levels = {}
    for with_head in (True, False):
        of_study, used = used_by(params, with_head=with_head)
        one, other = (next(g for g in of_study if g.name == name) for name in ("bert", "t5"))
        levels[with_head] = levels_of("architecture", one, other, used)
    assert levels[True] == ("encoder (mlm)", "encoder of an encoder_decoder (span_corruption)")
    assert levels[False] == ("encoder (mlm)", "encoder_decoder (span_corruption)")


def pretrained_pairs(among: list[Group], used: dict[str, Used], name: str) -> list[str]:
    """The partners from scratch of a pretrained group."""
    return [b.name for axis, a, b in pairs(among, used) if axis == "pretrained" and a.name == name]


@pytest.mark.slow
def test_an_encoder_from_scratch_is_the_partner_of_an_encoder_decoder_with_a_head(
    systems,
) -> None:
    """An encoder-decoder from scratch comes first; without a head there is no partner."""
    params = systems(128)
    of_study, used = used_by(params, with_head=True)
    own = "encoder_decoder_scratch"
    assert pretrained_pairs(of_study, used, "t5") == [own]
    assert pretrained_pairs(of_study, used, "bert") == ["encoder_scratch"]
    named = {frozenset((each.a.name, each.b.name)) for each in left_out(of_study, used)}
    assert frozenset(("t5", "encoder_scratch")) not in named  # not needed
    without = {name: each for name, each in used.items() if name != own}
    assert pretrained_pairs(of_study, without, "t5") == ["encoder_scratch"]
    assert pretrained_pairs(of_study, without, "bert") == ["encoder_scratch"]
    one, other = (next(g for g in of_study if g.name == name) for name in ("t5", "encoder_scratch"))
    assert levels_of("pretrained", one, other, used) == (
        f"encoder of an encoder_decoder, span_corruption on {one.corpus}",
        "encoder, from scratch",
    )
    _, whole = used_by(params, with_head=False)
    assert pretrained_pairs(of_study, {k: v for k, v in whole.items() if k != own}, "t5") == []


@pytest.mark.slow
def test_one_design_is_needed_for_a_partner_from_scratch(systems) -> None:
    of_study, used = used_by(systems(128), with_head=True)
    del used["encoder_decoder_scratch"]
    for design in ("another", None):
        used["encoder_scratch"] = replace(used["encoder_scratch"], design=design)
        assert pretrained_pairs(of_study, used, "t5") == []
    used["t5"] = replace(used["t5"], design=None)  # both unknown
    assert pretrained_pairs(of_study, used, "t5") == []


# What is not compared ----------------------------------------------------------------------------


def test_sizes_too_far_apart_are_said_with_their_ratio(study_of) -> None:
    runs = {"large": RUNS["encoder_mlm"], "small": run("decoder", "causal", d_model=96)}
    (pair,) = study_of(runs).not_compared
    assert (pair.axis, pair.a, pair.b) == ("architecture", "large", "small")
    assert pair.tasks == ("tag", "type", "section") and pair.methods == ("full", "linear_probe")
    ratio = 2_563_072 / 813_544
    assert f"{ratio:.1f} times" in pair.reason


def test_a_group_that_another_matches_better_is_said_once(study_of) -> None:
    """Two sizes of an encoder against one decoder: the large encoder has no partner."""
    runs = {
        "large": run("encoder", "mlm"),
        "middle": run("encoder", "mlm", d_model=96),
        "decoder": run("decoder", "causal", d_model=96),
    }
    omitted = study_of(runs).not_compared
    assert [(each.axis, each.a, each.b) for each in omitted] == [
        ("architecture", "large", "decoder")
    ]


def test_a_run_that_differs_from_all_others_in_more_than_one_axis_is_said(study_of) -> None:
    runs = {
        "encoder_mlm": RUNS["encoder_mlm"],
        "encoder_small": RUNS["encoder_small"],
        "odd": run("decoder", "causal", "scientific", d_model=48),
    }
    omitted = study_of(runs).not_compared
    assert [(each.axis, each.a, each.b) for each in omitted] == [("", "odd", "")]


def test_a_run_that_one_of_its_design_is_compared_with_is_not_said_to_be_alone(study_of) -> None:
    runs = {"t5": run("encoder_decoder", "span_corruption"), "scratch": RUNS["encoder_scratch"]}
    apart = study_of(runs)
    assert {each.a for each in apart.not_compared} == {"t5", "scratch"}
    trials = [replace(t, design="encoder", used_architecture="encoder") for t in apart.trials]
    alike = replace(apart, trials=trials)
    assert not alike.not_compared
    made = [c for c in alike.contrasts if c.axis == "pretrained"]
    assert {(c.a.group, c.b.group) for c in made} == {("t5", "scratch")}


def test_what_is_compared_is_not_listed(results: Results) -> None:
    compared = {frozenset((c.a.group, c.b.group)) for c in results.contrasts}
    listed = [frozenset((each.a, each.b)) for each in results.not_compared]
    assert not compared & {*listed}
    ((_, rows),) = comparisons_not_made(results.not_compared, results.scores).tables.items()
    assert len(rows) == len(listed)


def test_a_tokenizer_of_one_arm_is_a_confound_of_training_sets_alone(results: Results) -> None:
    """The tokenizer, trained on `all`, favours neither side between two other corpora."""
    seen = set()
    for contrast in results.contrasts:
        is_confounded = Confound("tokenizer trained on", ("all",)) in contrast.confounds
        sides = {side.trials[0].corpus for side in contrast.sides}
        assert is_confounded == (contrast.axis == "training set" and "all" in sides)
        seen.add((contrast.axis == "training set", is_confounded))
    assert seen == {(True, True), (True, False), (False, False)}
