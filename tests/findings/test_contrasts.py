"""The contrasts of single tasks: the second stage of a study."""

from dataclasses import replace
from typing import Any

import pytest

from stages.evaluation.statistics import CHECKPOINTS
from stages.findings.cells import Cell
from stages.findings.facts import Contrast, Verdict
from stages.findings.results import Results


def names(contrast: Contrast) -> set[str]:
    return {difference.name for difference in contrast.also_differs}


def test_every_pair_on_every_task_and_method_and_both_methods_of_every_model(
    results: Results,
) -> None:
    keys = [(c.axis, c.task, c.a.model, c.b.model, c.a.method) for c in results.contrasts]
    assert len(keys) == len(set(keys)) == 10 * 3 * 2 + 7 * 3
    for c in results.contrasts:
        assert c.estimate.value == pytest.approx(c.b.score.value - c.a.score.value)


def test_one_pretraining_seed_has_an_interval_and_no_verdict(results: Results) -> None:
    """Models from scratch have verdicts, as every trial has its own weights."""
    for contrast in results.contrasts:
        is_scratch = {contrast.a.model, contrast.b.model} <= {"encoder_scratch", "decoder_scratch"}
        assert contrast.estimate.low is not None
        assert (contrast.verdict is Verdict.ONE_SEED) == (not is_scratch)
        assert (contrast.p_holm is None) == (not is_scratch)
        assert is_scratch or contrast.basis == CHECKPOINTS


def test_a_contrast_is_never_surer_than_its_main_effect(five_seeds: Results) -> None:
    """Nor than its own p-value, and it is significant only if its interval excludes 0."""
    effects = {(e.axis, e.level_a, e.level_b): e for e in five_seeds.effects}
    verdicts = set()
    for contrast in five_seeds.contrasts:
        effect = effects[contrast.axis, contrast.level_a, contrast.level_b]
        assert contrast.p is not None and contrast.p_holm is not None and effect.p_holm is not None
        assert contrast.p_holm >= max(contrast.p, effect.p_holm)
        if contrast.verdict is Verdict.SIGNIFICANT:
            assert effect.verdict is Verdict.SIGNIFICANT and contrast.estimate.excludes_zero
        if contrast.seeds_needed:
            assert contrast.verdict is Verdict.NOT_SIGNIFICANT
        verdicts.add(contrast.verdict)
    assert verdicts == {Verdict.SIGNIFICANT, Verdict.UNSURE, Verdict.NOT_SIGNIFICANT} or (
        verdicts == {Verdict.SIGNIFICANT, Verdict.NOT_SIGNIFICANT}
    )


def changed(results: Results, name: str, **values: Any) -> Results:
    """Returns results in which the fully fine-tuned trials of a model have other values."""
    trials = [
        replace(t, **values) if (t.model, t.method) == (name, "full") else t for t in results.trials
    ]
    return replace(results, trials=trials)


def test_a_side_that_ended_too_early_or_fits_its_labels_less_is_named(results: Results) -> None:
    of_pair = [
        c
        for c in changed(results, "encoder_mlm", still_improving=1, last_train_loss=1.5).contrasts
        if c.axis == "architecture" and c.a.method == "full" and c.a.model == "encoder_mlm"
    ]
    for contrast in of_pair:
        differences = {d.name: (d.a, d.b) for d in contrast.also_differs}
        assert differences["not converged"] == ("still improving", "")
        assert differences["fitted unequally"] == pytest.approx((1.5, 0.1))
    assert of_pair and not any(names(c) & {"not converged"} for c in results.contrasts)


def test_one_probe_without_a_minimum_is_a_fault(results: Results) -> None:
    def cell(method: str) -> Cell:
        keys = ("encoder_mlm", "tag", method)
        return next(c for c in results.cells if (c.model, c.task, c.method) == keys)

    probe, tuned = cell("linear_probe"), cell("full")
    assert probe.faults == ""
    trials = replace(probe.trials[0], converged=0), *probe.trials[1:]
    assert replace(probe, trials=trials).faults == "no minimum found"
    early = replace(tuned.trials[0], still_improving=1), *tuned.trials[1:]
    assert replace(tuned, trials=early).faults == ""  # one curve of five
