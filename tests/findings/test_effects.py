"""Main effects and leads, in studies whose truth is planted and in small ones by hand."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from stages.core.seeding import stream
from stages.evaluation.row_scores import by_groups
from stages.evaluation.statistics import mean
from stages.evaluation.variance import Checkpoints, Sample
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
    rng = stream(1, "planted")
    claims: dict[str, list[bool]] = {}
    covered = []
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
    crossed_models = repeated({n: RUNS[n] for n in [*RUNS][:4]}, 3)
    study = synthetic_study.drawn(raw_params(crossed_models, seeds=[1]))
    (crossing, *_) = [i for i in study.interactions if i.second_axis == "pretrained"]
    assert (crossing.axis, crossing.level_b) == ("architecture", "phi")
    difference = crossing.at_b.value - crossing.at_a.value
    assert crossing.estimate.value == pytest.approx(difference)
    assert crossing.num_pairs == 3 * 2 and crossing.verdict is not Verdict.NOT_TESTED
    of_size = {i.second_axis for i in results.interactions if i.axis == "size"}
    assert of_size == {"method"}  # the smaller model has no other architecture


def test_effects_of_tasks_in_other_units_stand_apart(results: Results) -> None:
    other = {"metric": "bits_per_byte"}
    apart = with_trials(results, lambda t: other if t.task == "section" else {})
    effects = [e for e in apart.effects if e.axis == "size"]
    assert [e.tasks for e in effects] == [("tag", "type"), ("section",)]


# By hand -------------------------------------------------------------------------------------


def cell(
    name: str, scores: np.ndarray, *, task: str = "t", checkpoints: Checkpoints = "none"
) -> Cell:
    """Returns a cell of trials whose rows all have the trial's score."""
    keys = tuple((seed, 1) for seed in range(1, len(scores) + 1))
    sample = Sample(keys, scores, np.repeat(scores[:, None], 40, axis=1), checkpoints)
    return Cell(name, task, "full", "200", (), sample, mean(sample, confidence=0.95))


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


def test_effect_does_not_depend_on_what_all_models_of_a_seed_share() -> None:
    rng = stream(1, "shared")
    scores, shift = rng.normal(0.5, 0.02, (4, 3)), np.array([0.3, -0.2, 0.1])
    effects = []
    for of_case in (scores, scores + shift):
        cells = [cell(f"m{i}", row) for i, row in enumerate(of_case)]
        effects.append(measured(cells, [(1.0, cells[0]), (-1.0, cells[1])]))
    assert effects[0] == pytest.approx(effects[1])


def test_effect_uses_the_seeds_that_two_models_share() -> None:
    many, few = cell("a", np.array([0.5, 0.6, 0.9, 0.1])), cell("b", np.array([0.4, 0.7]))
    value, *_ = measured([many, few], [(1.0, many), (-1.0, few)])
    assert value == pytest.approx((0.1 - 0.1) / 2)


def test_rows_in_groups_widen_the_interval_of_a_lead() -> None:
    """Rows of a group agree in how much better the model is."""
    rng = stream(1, "groups")
    groups = np.repeat(np.arange(10), 60)
    gains = rng.normal(0.05, 0.2, 10)[groups] + rng.normal(0, 0.1, (3, 600))
    keys = tuple((seed, 1) for seed in (1, 2, 3))
    errors = []
    for clustered in (np.empty(0, dtype=int), groups):
        cells = []
        for name, rows in (("model", 0.5 + gains), ("baseline", np.full((3, 600), 0.5))):
            sample = Sample(keys, rows.mean(1), by_groups(rows, clustered), "none")
            of_model = Cell(name, "t", "full", "200", (), sample, mean(sample, confidence=0.95))
            cells.append(of_model)
        errors.append(numbers(lead(Trials(cells, confidence=0.95), *cells))[1])
    by_group = gains.mean(0).reshape(10, 60).mean(1).std(ddof=1) / 10**0.5
    assert errors[1] == pytest.approx(by_group, rel=0.02) and errors[1] > 3 * errors[0]
