"""The contrasts of single tasks: the second stage of a study."""

from dataclasses import replace

import pytest

from stages.evaluation.statistics import CHECKPOINTS
from stages.findings.cells import Cell
from stages.findings.facts import Verdict
from stages.findings.results import Results
from tests.synthetic_study import with_trials


def test_contrasts_are_of_every_pair_on_every_task_and_of_both_methods_of_every_model(
    results: Results,
) -> None:
    """One pretraining seed has an interval and no verdict. Models from scratch have verdicts, as
    every trial has its own weights."""
    keys = [(c.axis, c.a.key, c.b.key) for c in results.contrasts]
    assert len(keys) == len(set(keys)) == 10 * 3 * 2 + 7 * 3
    for c in results.contrasts:
        assert c.estimate.value == pytest.approx(c.b.score.value - c.a.score.value)
        is_scratch = {c.a.model, c.b.model} <= {"encoder_scratch", "decoder_scratch"}
        assert c.estimate.low is not None
        assert (c.verdict is Verdict.ONE_SEED) == (c.p_holm is None) == (not is_scratch)
        assert is_scratch or c.estimate.basis == CHECKPOINTS


def test_a_contrast_is_never_surer_than_its_main_effect(five_seeds: Results) -> None:
    """Nor than its own p-value, and it is significant only if its interval excludes 0."""
    effects = {effect.family: effect for effect in five_seeds.effects}
    verdicts = set()
    for contrast in five_seeds.contrasts:
        effect = effects[contrast.family]
        assert contrast.p is not None and contrast.p_holm is not None and effect.p_holm is not None
        assert contrast.p_holm >= max(contrast.p, effect.p_holm)
        if contrast.verdict is Verdict.SIGNIFICANT:
            assert effect.verdict is Verdict.SIGNIFICANT and contrast.estimate.excludes_zero
        verdicts.add(contrast.verdict)
    assert {Verdict.SIGNIFICANT, Verdict.NOT_SIGNIFICANT} <= verdicts


def test_a_side_that_ended_too_early_or_fits_its_labels_less_is_named(results: Results) -> None:
    worse = {"still_improving": 1, "last_train_loss": 1.5}
    changed = with_trials(
        results, lambda t: worse if (t.model, t.method) == ("encoder_mlm", "full") else {}
    )
    of_pair = [
        {difference.name: (difference.a, difference.b) for difference in c.also_differs}
        for c in changed.contrasts
        if c.axis == "architecture" and (c.a.model, c.a.method) == ("encoder_mlm", "full")
    ]
    for said in of_pair:
        assert said["not converged"] == ("still improving", "")
        assert said["fitted unequally"] == pytest.approx((1.5, 0.1))
    usual = {difference.name for c in results.contrasts for difference in c.also_differs}
    assert of_pair and "not converged" not in usual


def test_one_probe_without_a_minimum_is_a_fault(results: Results) -> None:
    def cell(method: str) -> Cell:
        key = ("encoder_mlm", "tag", method, "200")
        return next(c for c in results.cells if c.key == key)

    probe, tuned = cell("linear_probe"), cell("full")
    trials = replace(probe.trials[0], converged=0), *probe.trials[1:]
    assert (probe.faults, replace(probe, trials=trials).faults) == ("", "no minimum found")
    early = replace(tuned.trials[0], still_improving=1), *tuned.trials[1:]
    assert replace(tuned, trials=early).faults == ""  # one curve of five
