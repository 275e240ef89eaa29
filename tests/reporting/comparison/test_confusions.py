from dataclasses import replace

import pytest

from stages.evaluation.confusion import ConfusionRecord
from stages.reporting.comparison.best_runs import best_runs
from stages.reporting.comparison.confusions import MOST, OTHERS, Confusion, confusions
from stages.reporting.comparison.results import Results
from tests.synthetic_study import METRICS


def test_the_best_run_of_each_task_stands_beside_the_best_baseline(five_seeds: Results) -> None:
    found = confusions(five_seeds)
    assert [each.task for each in found] == [task for task in METRICS for _ in range(2)]
    for run, baseline in zip(found[::2], found[1::2], strict=True):
        best = best_runs(five_seeds)[run.task, "200"]
        assert best.strongest is not None
        assert best.run.group in run.finding and best.strongest.group in baseline.finding


def test_a_class_that_is_mistaken_is_the_finding(five_seeds: Results) -> None:
    """As planted: a third of ``b`` is taken for ``c``; numbers are those of one trial."""
    for each in confusions(five_seeds):
        assert "`b` is found least often (67%) and most often taken for `c` (33%)" in each.finding
        assert each.columns == ["a", "b", "c"]
        assert [line.number for line in each.lines] == [100, 90, 100]
        assert each.lines[1].shares == pytest.approx([0, 2 / 3, 1 / 3])
        assert each.lines[1].shades == [0, 4, 3]


def with_confusion(results: Results, found: dict[tuple[str, str], int]) -> list[Confusion]:
    """With these counts in one trial of the best run on ``tag``."""
    run = best_runs(results)["tag", "200"].run
    records = [
        ConfusionRecord(
            run=run.group,
            method=run.method,
            label_budget="200",
            num_trials=1,
            answer=answer,
            prediction=prediction,
            number=number,
        )
        for (answer, prediction), number in found.items()
    ]
    return confusions(replace(results, confusion=dict.fromkeys(METRICS, []) | {"tag": records}))


def test_of_many_classes_those_with_the_most_errors_are_shown(five_seeds: Results) -> None:
    wrong = {(f"c{i:02}", "never right"): i + 1 for i in range(30)}
    [found] = with_confusion(five_seeds, wrong | {(f"c{i:02}", "c29"): 1 for i in range(30)})
    assert len(found.lines) == MOST and found.columns[-1] == OTHERS
    assert [line.name for line in found.lines] == [f"c{i}" for i in range(20, 30)]
    assert all(sum(line.shares) == pytest.approx(1) for line in found.lines)
    assert f"{MOST} of 30 classes" in found.finding


def test_without_errors_or_without_classes_it_says_so(five_seeds: Results) -> None:
    [found] = with_confusion(five_seeds, {("a", "a"): 3, ("b", "b"): 2})
    assert "every class is always found" in found.finding and OTHERS not in found.columns
    assert with_confusion(five_seeds, {}) == []
