from dataclasses import replace

import pytest

from stages.evaluation.confusion import ConfusionRecord
from stages.findings.confusions import MOST, OTHERS, Confusion, confusion
from stages.findings.results import Results
from stages.reporting.words.tables import most_confused, shades
from tests.synthetic_study import METRICS


def confusion_of(results: Results, task: str) -> Confusion | None:
    """The confusion of the best run."""
    return confusion(results.best_runs[None][task, "200"].run, results.confusion[task])


def test_a_class_that_is_mistaken_is_the_finding(five_seeds: Results) -> None:
    """A third of ``b`` is taken for ``c``, as planted; numbers are per trial."""
    for task in METRICS:
        mistakes = confusion_of(five_seeds, task)
        assert mistakes is not None
        sentence = "`b` is found least often (67%) and most often taken for `c` (33%)"
        assert (
            most_confused(mistakes, [])
            == f"`{mistakes.cell.group}` with `{mistakes.cell.method}`: {sentence}"
        )
        assert mistakes.columns == ["a", "b", "c"]
        assert [line.number for line in mistakes.lines] == [100, 90, 100]
        assert mistakes.lines[1].shares == pytest.approx([0, 2 / 3, 1 / 3])
        assert shades(mistakes.lines[1]) == [0, 4, 3]


def with_confusion(results: Results, numbers: dict[tuple[str, str], int]) -> Confusion | None:
    """The confusion of the best run on ``tag``, from given counts."""
    run = results.best_runs[None]["tag", "200"].run
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
        for (answer, prediction), number in numbers.items()
    ]
    return confusion_of(replace(results, confusion={"tag": records}), "tag")


def test_of_many_classes_those_with_the_most_errors_are_shown(five_seeds: Results) -> None:
    wrong = {(f"c{i:02}", "never right"): i + 1 for i in range(30)}
    mistakes = with_confusion(five_seeds, wrong | {(f"c{i:02}", "c29"): 1 for i in range(30)})
    assert mistakes is not None
    assert len(mistakes.lines) == MOST and mistakes.columns[-1] == OTHERS
    assert [line.name for line in mistakes.lines] == [f"c{i}" for i in range(20, 30)]
    assert all(sum(line.shares) == pytest.approx(1) for line in mistakes.lines)
    assert f"{MOST} of 30 classes" in most_confused(mistakes, [])


def test_without_errors_or_without_classes_it_says_so(five_seeds: Results) -> None:
    mistakes = with_confusion(five_seeds, {("a", "a"): 3, ("b", "b"): 2})
    assert mistakes is not None and OTHERS not in mistakes.columns
    assert "every class is always found" in most_confused(mistakes, [])
    assert with_confusion(five_seeds, {}) is None
