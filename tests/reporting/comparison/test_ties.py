"""What is bracketed with the best run has no significant verdict in contrasts.csv."""

from dataclasses import replace

import pytest

from stages.reporting.comparison.best_runs import best_runs
from stages.reporting.comparison.results import Results
from stages.reporting.comparison.ties import APART, BEST, TIED, UNTESTED, beside_best, sentence
from stages.reporting.comparison.verdicts import SIGNIFICANT
from tests.synthetic_study import METRICS


def kinds(results: Results, task: str) -> dict[str, str]:
    return {each.name: each.kind for each in beside_best(results, best_runs(results)[task, "200"])}


@pytest.mark.parametrize("task", METRICS)
def test_planted_truth_is_bracketed(five_seeds: Results, task: str) -> None:
    """Half a point between two training sets is noise; 18 points to a run from scratch are not."""
    found = kinds(five_seeds, task)
    best = next(name for name, kind in found.items() if kind == BEST)
    other = {"encoder_mlm": "encoder_scientific", "encoder_scientific": "encoder_mlm"}[best]
    assert found[other] == TIED and found["encoder_scratch"] == APART
    assert found["majority"] == UNTESTED


def test_verdicts_are_those_of_the_table_of_contrasts(five_seeds: Results) -> None:
    rows = [contrast.row() for contrast in five_seeds.contrasts]
    for task in METRICS:
        run = best_runs(five_seeds)[task, "200"].run
        there = [row for row in rows if (row["task"], row["method"]) == (task, run.method)]
        for each in beside_best(five_seeds, best_runs(five_seeds)[task, "200"]):
            if each.name in five_seeds.baselines or each.kind == BEST:
                continue
            sides = {each.name, run.group}
            row = next((row for row in there if {row["run_a"], row["run_b"]} == sides), None)
            expected = UNTESTED if row is None else APART if row["verdict"] == SIGNIFICANT else TIED
            assert each.kind == expected, each.name


def test_one_pretraining_seed_tells_nothing_apart(results: Results) -> None:
    for task in METRICS:
        found = kinds(results, task)
        assert set(found.values()) == {BEST, UNTESTED}
        assert f"{len(found) - 1} not tested against the best run" in sentence(
            beside_best(results, best_runs(results)[task, "200"])
        )


def test_a_baseline_that_is_far_ahead_is_told_apart(five_seeds: Results) -> None:
    trials = [
        replace(t, value=0.95) if t.run in ("window", "tfidf") else t for t in five_seeds.trials
    ]
    found = kinds(replace(five_seeds, trials=trials), "tag")
    assert next(iter(found.items())) == ("window", APART)
    assert BEST in found.values()
