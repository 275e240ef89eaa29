"""The answer of a task: what is best, what ties with it, what is cheaper, and how much is luck."""

from dataclasses import replace
from statistics import fmean

import numpy as np
import pandas as pd
import pytest

from stages.core.seeding import stream
from stages.evaluation.statistics import mean
from stages.evaluation.variance import Sample
from stages.findings.answers import (
    Rival,
    Standing,
    Tie,
    cheapest_run,
    largest_error,
    next_best,
    rivals,
    selection_bias,
    smaller,
)
from stages.findings.cells import Cell
from stages.findings.costs import total_flops
from stages.findings.results import Results
from stages.findings.verdicts import Verdict
from tests.study_results import with_baseline_at
from tests.synthetic_study import METRICS


@pytest.fixture(scope="module")
def means(five_seeds: Results) -> pd.DataFrame:
    """The mean score and number of weights of each run and baseline, computed by pandas."""
    trials = pd.DataFrame(map(vars, five_seeds.trials))
    of = ["task", "label_budget", "run", "method"]
    return trials.pivot_table(["value", "num_params"], of, aggfunc="mean").reset_index()


@pytest.mark.parametrize("value", [0.2, 0.564, 0.999])
def test_standing_is_that_of_the_best_mean_and_its_verdict(
    five_seeds: Results, results: Results, value: float
) -> None:
    for best in with_baseline_at(five_seeds, value).best_runs[None].values():
        assert (best.standing is Standing.BASELINE) == (not best.run_is_ahead)
        leads = best.run_is_ahead and best.verdict is Verdict.SIGNIFICANT
        assert (best.standing is Standing.LEADS) == leads
    for best in with_baseline_at(results, value).best_runs[None].values():  # one seed
        assert best.verdict is Verdict.ONE_SEED
        assert best.standing is (Standing.UNTESTED if best.run_is_ahead else Standing.BASELINE)


def test_next_best_is_the_best_of_another_run_or_baseline(five_seeds, means) -> None:
    scores = five_seeds.scores
    for (task, _), best in five_seeds.best_runs[None].items():
        others = means[(means["task"] == task) & (means["run"] != best.best.group)]
        expected = others.loc[others["value"].idxmax()]
        after = next_best(best.best, scores, scores.methods)
        assert after and (after.group, after.method) == (expected["run"], expected["method"])
    for method, best_runs in five_seeds.best_runs.items():
        for best in best_runs.values():
            after = next_best(best.best, scores, [method] if method else scores.methods)
            assert after and after.merit <= best.best.merit


def test_smaller_has_fewer_weights_than_the_best_run(five_seeds, means) -> None:
    scores = five_seeds.scores
    runs = means[~means["run"].isin(scores.baselines)]
    num_found = 0
    for cell in scores.cells:
        lighter = smaller(cell, scores, scores.methods)
        if cell.group in scores.baselines:
            assert lighter is None
            continue
        here = runs[runs["task"] == cell.task]
        own = here[(here["run"] == cell.group) & (here["method"] == cell.method)]
        less = here[(here["num_params"] < own["num_params"].item()) & (here["run"] != cell.group)]
        assert (lighter.group if lighter else None) == (
            None if less.empty else less.loc[less["value"].idxmax(), "run"]
        )
        num_found += lighter is not None
    assert num_found


def test_smaller_is_no_run_without_the_weights_that_a_method_adds(five_seeds: Results) -> None:
    best = max(five_seeds.scores.of_groups, key=lambda cell: cell.merit)
    grown = [
        replace(t, num_params=10**12) if any(t is own for own in best.trials) else t
        for t in five_seeds.trials
    ]
    scores = replace(five_seeds, trials=grown).scores
    (larger,) = (cell for cell in scores.cells if cell.amounts["num_params"] == 10**12)
    lighter = smaller(larger, scores, scores.methods)
    assert lighter and lighter.group != best.group


def test_cheapest_run_costs_least_of_those_with_an_interval_around_0(five_seeds: Results) -> None:
    """Pretraining on one training set costs half as much."""
    halved = [
        replace(t, lineage_flops=(t.lineage_flops or 0) // 2) if t.corpus == "scientific" else t
        for t in five_seeds.trials
    ]
    results = replace(five_seeds, trials=halved)
    num_cheaper = 0
    for run in results.scores.of_groups:
        contrasts = results.contrasts_of[run]
        good = [run] + [c.other(run) for c in contrasts if not c.effect.excludes_zero]
        flops = [fmean((t.lineage_flops or 0) + t.finetune_flops for t in c.trials) for c in good]
        chosen = cheapest_run(run, contrasts, results.scores.methods)
        assert chosen in good
        assert flops[good.index(chosen)] == pytest.approx(min(flops))
        num_cheaper += chosen is not run
    assert num_cheaper


def test_cheapest_run_has_one_of_the_methods(five_seeds: Results) -> None:
    for method in five_seeds.scores.methods:
        for best in five_seeds.best_runs[method].values():
            contrasts = five_seeds.contrasts_of[best.run]
            assert cheapest_run(best.run, contrasts, [method]).method == method


def test_preference_is_the_cheaper_of_equal_means(study_of) -> None:
    """All runs of the study have the mean of the best baseline."""
    results = study_of(score=0.57)
    flops = {cell: total_flops(cell) or 0 for cell in results.scores.of_groups}
    for (task, budget), best in results.best_runs[None].items():
        here = results.scores.run_cells(task, budget)
        assert flops[best.run] == min(flops[cell] for cell in here)
        contrasts = results.contrasts_of[best.run]
        assert cheapest_run(best.run, contrasts, results.scores.methods) is best.run
        if best.strongest and best.strongest.mean.value == best.run.mean.value:
            assert best.best is best.strongest


def rivals_of(results: Results, task: str) -> dict[str, Rival]:
    best = results.best_runs[None][task, "200"]
    return {r.cell.group: r for r in rivals(best, results.scores, results.contrasts_of)}


@pytest.mark.parametrize("task", METRICS)
def test_rivals_are_told_apart_as_planted(five_seeds: Results, task: str) -> None:
    """Half a point between two training sets is noise; 18 points over a scratch run are not."""
    tie_of = {name: rival.tie for name, rival in rivals_of(five_seeds, task).items()}
    best = next(name for name, tie in tie_of.items() if tie is Tie.BEST)
    other = {"encoder_mlm": "encoder_scientific", "encoder_scientific": "encoder_mlm"}[best]
    assert tie_of[other] in (Tie.TIED, Tie.UNSURE) and tie_of["encoder_scratch"] is Tie.APART
    assert tie_of["majority"] is Tie.UNTESTED


def test_rivals_have_the_verdicts_of_their_contrasts(five_seeds: Results) -> None:
    for task in METRICS:
        for rival in rivals_of(five_seeds, task).values():
            if rival.tested is None:
                assert rival.tie in (Tie.BEST, Tie.UNTESTED)
            else:
                assert rival.tie is {
                    Verdict.SIGNIFICANT: Tie.APART,
                    Verdict.BEFORE_CORRECTION: Tie.UNSURE,
                    Verdict.NOT_SIGNIFICANT: Tie.TIED,
                }.get(rival.tested.verdict, Tie.UNTESTED)


def test_rivals_of_one_pretraining_seed_are_not_tested(results: Results) -> None:
    for task in METRICS:
        assert {r.tie for r in rivals_of(results, task).values()} == {Tie.BEST, Tie.UNTESTED}


def test_a_baseline_that_is_far_ahead_is_told_apart(five_seeds: Results) -> None:
    by_group = rivals_of(with_baseline_at(five_seeds, 0.95), "tag")
    first = next(iter(by_group.values()))
    assert (first.cell.group, first.tie) == ("window", Tie.APART)


@pytest.mark.parametrize("deviations", [[0.5] * 20, [2.0, 0.1, 0.0, 1.0]])
def test_largest_error_is_the_mean_of_sampled_ones(deviations: list[float]) -> None:
    errors = stream(1, "errors").normal(size=(200_000, len(deviations))) * deviations
    assert largest_error(deviations) == pytest.approx(errors.max(axis=1).mean(), rel=0.01)


def test_largest_error_of_two_is_the_known_constant() -> None:
    assert largest_error([1.0, 1.0]) == pytest.approx(1 / np.sqrt(np.pi), rel=1e-4)
    assert largest_error([1.0]) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("spread", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("shared", [0.0, 0.8])
def test_largest_error_bounds_what_choosing_adds(spread: float, shared: float) -> None:
    """Simulates 20,000 studies: the chosen run's score minus its true score."""
    rng, number = stream(1, "studies"), 12
    truth = spread * rng.normal(size=number)
    errors = rng.normal(size=(20_000, number)) * np.sqrt(1 - shared)
    errors += rng.normal(size=(20_000, 1)) * np.sqrt(shared)
    chosen = (truth + errors).argmax(axis=1)
    bias = np.take_along_axis(errors, chosen[:, None], axis=1).mean()
    highest = largest_error([1.0] * number)
    assert 0 < bias <= highest + 0.03
    if not spread and not shared:
        assert bias == pytest.approx(highest, rel=0.02)


def of_one_trial(cell: Cell, value: float) -> Cell:
    """Reduces a cell to its first trial, with another score."""
    trials, all_trials = (replace(cell.trials[0], value=value),), cell.sample
    sample = Sample(
        all_trials.keys[:1], np.array([value]), all_trials.rows[:1], all_trials.checkpoints
    )
    interval = mean(sample, confidence=cell.confidence)
    return replace(cell, trials=trials, sample=sample, mean=interval)


def test_selection_bias_is_unknown_if_a_contender_has_one_trial(five_seeds: Results) -> None:
    """A contender far below the best is never chosen."""
    cells = five_seeds.scores.run_cells("tag", "200")
    for value, is_known in ((0.0, True), (max(cell.mean.value for cell in cells) - 1e-6, False)):
        once = of_one_trial(cells[0], value)
        assert selection_bias([once, *cells[1:]]) == (
            selection_bias(cells[1:]) if is_known else None
        )
