"""The contrasts of single tasks: the second stage of a study."""

from dataclasses import replace
from typing import Any

import pytest

from stages.evaluation.statistics import CHECKPOINTS, PRETRAINING
from stages.findings.convergence import faults
from stages.findings.facts import Contrast, Verdict
from stages.findings.results import Results
from tests.synthetic_study import RUNS, public, raw_params, repeated, run


def names(contrast: Contrast) -> set[str]:
    return {difference.name for difference in contrast.also_differs}


def test_every_pair_on_every_task_and_method_and_both_methods_of_every_model(
    results: Results,
) -> None:
    keys = [(c.axis, c.task, c.a.model, c.b.model, c.a.method) for c in results.contrasts]
    assert len(keys) == len(set(keys)) == 10 * 3 * 2 + 7 * 3


def test_contrasts_are_differences_of_means(results: Results) -> None:
    for contrast in results.contrasts:
        difference = contrast.b.score.value - contrast.a.score.value
        assert contrast.estimate.value == pytest.approx(difference)


def test_several_seeds_of_a_model_support_a_claim_beyond_the_checkpoint(study_of) -> None:
    results = study_of(repeated({n: RUNS[n] for n in ("encoder_mlm", "decoder_causal")}, 2))
    contrast = results.contrasts[0]
    assert (contrast.basis, contrast.test) == (PRETRAINING, "paired t")
    assert contrast.verdict is not Verdict.ONE_SEED


def test_one_pretraining_seed_has_an_interval_and_no_verdict(results: Results) -> None:
    """Models from scratch have verdicts, as every trial has its own weights."""
    for contrast in results.contrasts:
        is_scratch = {contrast.a.model, contrast.b.model} <= {"encoder_scratch", "decoder_scratch"}
        assert contrast.estimate.low is not None
        assert (contrast.verdict is Verdict.ONE_SEED) == (not is_scratch)
        assert (contrast.p_holm is None) == (not is_scratch)
        assert is_scratch or contrast.basis == CHECKPOINTS


def test_published_checkpoints_have_verdicts_about_themselves(study_of) -> None:
    results = study_of({"bert": public("google-bert/bert"), "gpt2": public("openai/gpt2")})
    (contrast, *_) = [c for c in results.contrasts if c.axis == "checkpoint"]
    assert contrast.basis == CHECKPOINTS and contrast.verdict is not Verdict.ONE_SEED
    assert [e.of_published for e in results.effects] == [True, True]


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


def test_more_labels_are_compared_with_fewer(study_of) -> None:
    raw = raw_params({"encoder_mlm": RUNS["encoder_mlm"]})
    raw["finetune"]["label_budgets"] = ["all", 50, 200]
    contrasts = [c for c in study_of(raw=raw).contrasts if c.axis == "label budget"]
    levels = {(c.level_a, c.level_b) for c in contrasts}
    assert levels == {("50", "200"), ("50", "all"), ("200", "all")}
    assert all((c.label_budget_a, c.label_budget_b) == (c.level_a, c.level_b) for c in contrasts)


def test_own_fine_tuning_of_a_model_also_differs(study_of) -> None:
    raw = raw_params({"one": RUNS["encoder_mlm"], "other": run("encoder", "mlm", "scientific")})
    raw["finetune"]["methods"]["full"]["runs"] = {"other": {"lr": 0.01}}
    for contrast in study_of(raw=raw).contrasts:
        differs = contrast.axis == "training set" and contrast.a.method == "full"
        assert ("finetune.training.lr" in names(contrast)) == differs


def changed(results: Results, name: str, **values: Any) -> Results:
    """Returns results in which the fully fine-tuned trials of a model have other values."""
    trials = [
        replace(t, **values) if (t.run, t.method) == (name, "full") else t for t in results.trials
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
    cell = results.scores.cell("encoder_mlm", "tag", "linear_probe", "200")
    assert cell is not None and faults(cell) == {}
    trials = replace(cell.trials[0], converged=0), *cell.trials[1:]
    assert [f.name for f in faults(replace(cell, trials=trials))] == ["no minimum found"]
    curves = results.scores.cell("encoder_mlm", "tag", "full", "200")
    assert curves is not None
    early = replace(curves.trials[0], still_improving=1), *curves.trials[1:]
    assert faults(replace(curves, trials=early)) == {}  # one curve of five
