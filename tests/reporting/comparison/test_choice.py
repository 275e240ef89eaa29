"""What else could be chosen: the same from the tables of the report, by pandas."""

from dataclasses import replace
from statistics import fmean

import pandas as pd
import pytest

from stages.evaluation.metrics import POINTS
from stages.reporting.comparison import costs
from stages.reporting.comparison.answer import ANY, CLASSICAL, answers, rows
from stages.reporting.comparison.best_runs import best_runs
from stages.reporting.comparison.choice import (
    cheapest,
    cheapest_run,
    next_best,
    smaller,
    takes,
)
from stages.reporting.comparison.results import Results
from stages.reporting.comparison.tables import trials
from stages.reporting.number_format import seconds

KEYS = ("run", "task", "method", "label_budget")


@pytest.fixture(scope="module")
def means(five_seeds: Results) -> pd.DataFrame:
    """The mean and the number of weights of each run's and baseline's trials."""
    found = pd.DataFrame(trials(five_seeds))
    group_of = {run: group.name for group in five_seeds.groups for run in group.runs}
    found["group"] = found["run"].map(lambda run: group_of.get(run, run))
    found["num_params"] = pd.to_numeric(found["num_params"])
    of = ["task", "label_budget", "group", "method"]
    return found.pivot_table(["value", "num_params"], of, aggfunc="mean").reset_index()


def test_the_next_best_is_the_best_of_another_run_or_baseline(five_seeds, means) -> None:
    for card in answers(five_seeds)[0].cards:
        others = means[(means["task"] == card.task) & (means["group"] != card.best.group)]
        expected = others.loc[others["value"].idxmax()]
        after = next_best(five_seeds, card.best, five_seeds.methods)
        assert after and (after.group, after.method) == (expected["group"], expected["method"])
        said = card.against[CLASSICAL] + card.otherwise
        assert f"`{expected['group']}`" in said and POINTS.shown(expected["value"]) in said


def test_a_smaller_model_has_fewer_weights_than_the_best_run(five_seeds, means) -> None:
    runs = means[~means["group"].isin(five_seeds.baselines)]
    num_found = 0
    for cell in five_seeds.cells:
        found = smaller(five_seeds, cell, five_seeds.methods)
        if cell.group in five_seeds.baselines:
            assert found is None
            continue
        here = runs[runs["task"] == cell.task]
        own = here[(here["group"] == cell.group) & (here["method"] == cell.method)]
        less = here[(here["num_params"] < own["num_params"].item()) & (here["group"] != cell.group)]
        assert (found is None) == less.empty
        if found:
            num_found += 1
            assert found.group == less.loc[less["value"].idxmax(), "group"]
    assert num_found


def test_a_run_without_the_weights_that_a_method_adds_is_no_smaller_model(five_seeds) -> None:
    runs = [cell for cell in five_seeds.cells if cell.group not in five_seeds.baselines]
    best = max(runs, key=lambda cell: cell.merit)
    others = {t.method for cell in runs if cell.group == best.group for t in cell.trials}
    assert len(others) > 1
    grown = [
        replace(t, num_params=10**12) if any(t is own for own in best.trials) else t
        for t in five_seeds.trials
    ]
    results = replace(five_seeds, trials=grown)
    (larger,) = (cell for cell in results.cells if cell.amounts["num_params"] == 10**12)
    found = smaller(results, larger, results.methods)
    assert found and found.group != best.group


def test_what_a_training_takes_is_the_mean_of_its_trials(five_seeds) -> None:
    cell = next(c for c in five_seeds.cells if c.group not in five_seeds.baselines)
    said = takes(five_seeds, cell)
    of = {(t.run, t.task, t.method, t.label_budget) for t in cell.trials}
    wanted = [row for row in costs.rows(five_seeds) if tuple(row[key] for key in KEYS) in of]
    assert len(wanted) == len(cell.trials)
    assert seconds(fmean(row["wall_time_s"] for row in wanted)) in said
    assert wanted[0]["hardware"] in said
    baseline = next(c for c in five_seeds.cells if c.group in five_seeds.baselines)
    assert takes(five_seeds, baseline) == ""


def test_the_table_holds_the_first_answer_of_every_task_and_number_of_labels(five_seeds) -> None:
    table = rows(five_seeds)
    places = {(c.task, c.label_budget) for c in five_seeds.cells}
    assert {(row["task"], row["label_budget"]) for row in table} == places
    assert len(table) == len(places)
    for row in table:
        assert row["low"] <= row["mean"] <= row["high"]
        assert str(row["run"]) in str(row["use"]) and "`" not in "".join(map(str, row.values()))


def test_nothing_that_is_next_is_better_whatever_method_one_chooses(five_seeds) -> None:
    for answer in answers(five_seeds):
        methods = five_seeds.methods if answer.method == ANY else [answer.method]
        for card in answer.cards:
            after = next_best(five_seeds, card.best, methods)
            assert after and after.merit <= card.best.merit
            assert f"`{after.group}`" in card.against[CLASSICAL] + card.otherwise


def test_the_cheapest_choice_costs_least_of_those_with_an_interval_around_0(five_seeds) -> None:
    """The same from the rows of contrasts.csv and trials.csv, of a study in which one training set
    takes half as long."""
    halved = [
        replace(t, lineage_flops=t.lineage_flops // 2) if t.corpus == "scientific" else t
        for t in five_seeds.trials
    ]
    results = replace(five_seeds, trials=halved)
    contrasts = [contrast.row() for contrast in results.contrasts]
    found = pd.DataFrame(trials(results))
    group_of = {run: group.name for group in results.groups for run in group.runs}
    found["group"] = found["run"].map(lambda run: group_of.get(run, run))
    found["flops"] = found["lineage_flops"] + found["finetune_flops"]
    means = {
        place: fmean(some["flops"]) for place, some in found.groupby(["task", "group", "method"])
    }
    num_cheaper = 0
    for run in (cell for cell in results.cells if cell.group not in results.baselines):
        good = {(run.group, run.method)}
        for row in (row for row in contrasts if row["task"] == run.task):
            methods = row["method"].split(" v. ")
            sides = [(row["run_a"], methods[0]), (row["run_b"], methods[-1])]
            if (run.group, run.method) in sides and row["low"] <= 0 <= row["high"]:
                good |= {*sides}
        expected = min(means[run.task, group, method] for group, method in good)
        chosen = cheapest_run(results, run, results.methods)
        assert (chosen.group, chosen.method) in good
        assert means[run.task, chosen.group, chosen.method] == pytest.approx(expected)
        num_cheaper += chosen is not run
    assert num_cheaper


@pytest.mark.parametrize(("value", "good"), [(0.999, False), (0.0, True)])
def test_a_run_that_is_clearly_behind_a_baseline_is_no_good_choice(
    five_seeds: Results, value: float, good: bool
) -> None:
    moved = [
        replace(t, value=value) if t.run in ("window", "tfidf") else t for t in five_seeds.trials
    ]
    results = replace(five_seeds, trials=moved)
    for (task, _), best in best_runs(results).items():
        said = cheapest(results, best, results.methods)
        assert best.strongest is not None
        assert (f"`{best.strongest.group}`" in said) is not good, task
        assert ("FLOPs" in said) is good


def test_two_methods_of_one_study_have_their_own_cheapest_choice(five_seeds: Results) -> None:
    for method in five_seeds.methods:
        for best in best_runs(five_seeds, method).values():
            assert cheapest_run(five_seeds, best.run, [method]).method == method
