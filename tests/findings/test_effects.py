"""Contrasts, main effects and leads, in studies whose truth is planted and in small ones by
hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from stages.core.seeding import stream
from stages.evaluation.row_scores import by_groups
from stages.evaluation.statistics import CHECKPOINTS, mean
from stages.evaluation.variance import Sample
from stages.findings.cells import Cell
from stages.findings.effects import Match, Trials, lead
from stages.findings.facts import Claim, LeadCertainty, Verdict
from stages.findings.results import Results
from tests import synthetic_study
from tests.planted_effects import Case, crossed, drawn
from tests.synthetic_study import RUNS, raw_params, repeated, with_trials

PLANTED = Case("2 x 2 x 2", crossed("a", "b"), {"b": 4.0, "large": 2.0, "yes": 2.0})


def test_planted_effects_of_a_crossed_study_are_found() -> None:
    """An effect of 4 is claimed in nearly all studies, of 2 in most of them (benchmarks/coverage.md
    has the shares of many more), and none with the wrong sign."""
    rng, claims, covered = stream(1, "planted"), dict[str, list[bool]](), list[bool]()
    for _ in range(20):
        study = drawn(PLANTED, rng)
        for effect in study.results.effects:
            truth, estimate = study.truth(effect), effect.estimate
            assert estimate.low is not None and estimate.high is not None
            covered.append(estimate.low <= truth <= estimate.high)
            claimed = effect.verdict is Verdict.SIGNIFICANT
            assert not claimed or estimate.value * truth > 0
            claims.setdefault(effect.axis, []).append(claimed)
        assert [effect.num_pairs for effect in study.results.effects] == [4 * 3] * 3
    assert np.mean(claims["architecture"]) >= 0.9
    assert np.mean(claims["size"] + claims["pretrained"]) >= 0.4
    assert np.mean(covered) >= 0.88


def test_a_study_without_effects_claims_next_to_nothing() -> None:
    """One baseline equals all models. Chance would claim 4 % of first families and 2 % of leads."""
    rng = stream(1, "nothing")
    studies = [drawn(replace(PLANTED, gains={}), rng) for _ in range(20)]
    effects = [e.verdict is Verdict.SIGNIFICANT for study in studies for e in study.results.effects]
    leads = [
        bool(answer.lead) and answer.lead.certainty is LeadCertainty.LEADS
        for study in studies
        for answer in study.results.answers
        if study.lead(answer) <= 1e-9
    ]
    assert sum(effects) <= 3 and sum(leads) <= 2


def test_an_interaction_is_the_difference_of_the_effects_at_two_levels(results: Results) -> None:
    """Effects of tasks whose scores have another unit stand apart."""
    four = repeated({n: RUNS[n] for n in [*RUNS][:4]}, 3)
    study = synthetic_study.drawn(raw_params(four, seeds=[1]))
    crossing = next(i for i in study.interactions if i.second_axis == "pretrained")
    assert (crossing.axis, crossing.level_b) == ("architecture", "phi")
    difference = crossing.at_b.value - crossing.at_a.value
    assert crossing.estimate.value == pytest.approx(difference)
    assert crossing.num_pairs == 3 * 2 and crossing.verdict is not Verdict.NOT_TESTED
    of_size = {i.second_axis for i in results.interactions if i.axis == "size"}
    assert of_size == {"method"}  # the smaller model has no other architecture
    bits = {"metric": "bits_per_byte"}
    apart = with_trials(results, lambda t: bits if t.task == "section" else {})
    tasks = [effect.tasks for effect in apart.effects if effect.axis == "size"]
    assert tasks == [("tag", "type"), ("section",)]


# Contrasts -----------------------------------------------------------------------------------


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
    effects, verdicts = {effect.family: effect for effect in five_seeds.effects}, set()
    for contrast in five_seeds.contrasts:
        effect = effects[contrast.family]
        assert contrast.p is not None and contrast.p_holm is not None and effect.p_holm is not None
        assert contrast.p_holm >= max(contrast.p, effect.p_holm)
        if contrast.verdict is Verdict.SIGNIFICANT:
            assert effect.verdict is Verdict.SIGNIFICANT and contrast.estimate.excludes_zero
        verdicts.add(contrast.verdict)
    assert {Verdict.SIGNIFICANT, Verdict.NOT_SIGNIFICANT} <= verdicts


def test_a_side_that_ended_too_early_or_fits_its_labels_less_is_named(results: Results) -> None:
    """A probe without a minimum is a fault; one of five curves that still improves is none."""
    worse, side = {"still_improving": 1, "last_train_loss": 1.5}, ("encoder_mlm", "full")
    changed = with_trials(results, lambda t: worse if (t.model, t.method) == side else {})
    of_pair = [
        {difference.name: (difference.a, difference.b) for difference in c.also_differs}
        for c in changed.contrasts
        if c.axis == "architecture" and (c.a.model, c.a.method) == side
    ]
    for said in of_pair:
        assert said["not converged"] == ("still improving", "")
        assert said["fitted unequally"] == pytest.approx((1.5, 0.1))
    usual = {difference.name for c in results.contrasts for difference in c.also_differs}
    assert of_pair and not {"not converged", "fitted unequally"} & usual
    faults: dict[str, Any] = {"linear_probe": {"converged": 0}, "full": {"still_improving": 1}}
    for method, said in (("linear_probe", "no minimum found"), ("full", "")):
        own = next(c for c in results.cells if c.key == ("encoder_mlm", "tag", method, "200"))
        trials = replace(own.trials[0], **faults[method]), *own.trials[1:]
        assert (own.faults, replace(own, trials=trials).faults) == ("", said)


# By hand -------------------------------------------------------------------------------------


def cell(name: str, scores: np.ndarray, rows: np.ndarray | None = None) -> Cell:
    """Returns a cell of trials; without ``rows``, all rows of a trial have its score."""
    keys = tuple((seed, 1) for seed in range(1, len(scores) + 1))
    rows = np.repeat(scores[:, None], 40, axis=1) if rows is None else rows
    return cell_of(name, Sample(keys, scores, rows, "none"))


def cell_of(name: str, sample: Sample) -> Cell:
    return Cell(name, "t", "full", "200", (), sample, mean(sample, confidence=0.95))


def measured(cells: list[Cell], *matches: Match) -> tuple[float, float, float]:
    """Returns the value, the standard error and the degrees of freedom."""
    return numbers(Trials(cells, confidence=0.95).measured(matches, "between models"))


def numbers(tested: Claim) -> tuple[float, float, float]:
    value, high, df = tested.estimate.value, tested.estimate.high, tested.df
    assert high is not None and df
    return value, (high - value) / float(stats.t.ppf(0.975, df)), df


def test_effect_of_one_pair_alone_is_between_blocks_and_models() -> None:
    """With two models and one task, all that is known is the spread of their paired differences:
    n - 1 degrees of freedom, and as many of the prior, at most 3."""
    a, b = stream(1, "pair").normal(0.5, 0.02, (2, 6))
    one, other = cell("a", a), cell("b", b)
    value, error, df = measured([one, other], [(1.0, other), (-1.0, one)])
    assert value == pytest.approx(float((b - a).mean()))
    assert error == pytest.approx((b - a).std(ddof=1) / 6**0.5)
    assert df == pytest.approx(5 + 3)
    swapped = measured([one, other], [(1.0, one), (-1.0, other)])
    assert swapped == pytest.approx((-value, error, df))


def test_effect_is_that_of_the_seeds_that_two_models_share() -> None:
    """What all models of a seed share changes nothing."""
    scores, effects = stream(1, "shared").normal(0.5, 0.02, (4, 3)), []
    for of_case in (scores, scores + np.array([0.3, -0.2, 0.1])):
        cells = [cell(f"m{i}", row) for i, row in enumerate(of_case)]
        effects.append(measured(cells, [(1.0, cells[0]), (-1.0, cells[1])]))
    assert effects[0] == pytest.approx(effects[1])
    many, few = cell("a", np.array([0.5, 0.6, 0.9, 0.1])), cell("b", np.array([0.4, 0.7]))
    value, *_ = measured([many, few], [(1.0, many), (-1.0, few)])
    assert value == pytest.approx((0.1 - 0.1) / 2)


def test_rows_in_groups_widen_the_interval_of_a_lead() -> None:
    """Rows of a group agree in how much better the model is."""
    rng, errors = stream(1, "groups"), []
    groups = np.repeat(np.arange(10), 60)
    gains = rng.normal(0.05, 0.2, 10)[groups] + rng.normal(0, 0.1, (3, 600))
    for clustered in (np.empty(0, dtype=int), groups):
        sides = {"model": 0.5 + gains, "baseline": np.full((3, 600), 0.5)}
        cells = [cell(n, rows.mean(1), by_groups(rows, clustered)) for n, rows in sides.items()]
        errors.append(numbers(lead(Trials(cells, confidence=0.95), *cells))[1])
    by_group = gains.mean(0).reshape(10, 60).mean(1).std(ddof=1) / 10**0.5
    assert errors[1] == pytest.approx(by_group, rel=0.02) and errors[1] > 3 * errors[0]


def test_lead_of_draws_of_the_splits_is_the_corrected_resampled_t_test() -> None:
    scores, keys = stream(1, "draws").normal(size=(2, 5)), tuple((1, draw) for draw in range(5))
    cells = [
        cell_of(n, Sample.of_draws(keys, s, "none", 1 / 8))
        for n, s in zip("ab", scores, strict=True)
    ]
    difference = scores[0] - scores[1]
    error = difference.std(ddof=1) * (1 / 5 + 1 / 8) ** 0.5
    measured_lead = numbers(lead(Trials(cells, confidence=0.95), *cells))
    assert measured_lead == pytest.approx((difference.mean(), error, 4))
