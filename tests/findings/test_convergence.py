"""The report warns of cells that were fitted for too short a time, and marks their contrasts."""

from dataclasses import replace
from typing import Any

import pytest

from stages.findings.cells import Cell
from stages.findings.convergence import faults
from stages.findings.results import Results
from stages.reporting.words.answer import answers
from stages.reporting.words.appendix import convergence
from stages.reporting.words.names import confound, warnings


def with_faults(results: Results, run: str, number: int, **faults: Any) -> Results:
    """Sets values of the first ``number`` seeds of a run's full fine-tuning on ``type``."""
    trials = [
        replace(trial, **faults)
        if (trial.run, trial.task, trial.method) == (run, "type", "full")
        and trial.finetune_seed <= number
        else trial
        for trial in results.trials
    ]
    return replace(results, trials=trials)


def cell(results: Results, run: str) -> Cell:
    one_cell = results.scores.cell(run, "type", "full", "200")
    assert one_cell is not None
    return one_cell


def test_nothing_is_said_of_what_has_converged(results) -> None:
    assert not any(warnings(cell) for cell in results.scores.cells)
    names = {c.name for contrast in results.contrasts for c in contrast.confounds}
    assert "not converged" not in names
    last = with_faults(results, "encoder_scratch", 5, best_is_last=1)
    assert warnings(cell(last, "encoder_scratch")) == []  # harmless alone


@pytest.mark.parametrize("column", ["still_improving", "chosen_in_warmup"])
def test_a_cell_most_of_whose_trials_ended_too_early_is_named_and_its_contrasts_marked(
    results, column
) -> None:
    run = "encoder_scratch"
    fault: dict[str, Any] = {column: 1, "best_is_last": 1}
    assert not warnings(cell(with_faults(results, run, 2, **fault), run))
    short = with_faults(results, run, 3, **fault)
    words = warnings(cell(short, run))
    assert len(words) == 2 and all("3 of 5" in each for each in words)
    (warned,) = [cell for cell in short.scores.cells if faults(cell)]
    assert (warned.group, warned.task) == (run, "type")
    for contrast in short.contrasts:
        of_it = contrast.task == "type" and any(
            (side.group, side.method) == (run, "full") for side in contrast.sides
        )
        marks = [confound(c) for c in contrast.confounds if c.name == "not converged"]
        assert len(marks) == of_it and all(run in mark for mark in marks)


def test_the_answer_says_that_the_best_run_had_not_converged(results) -> None:
    """Only the best run is named, even if a baseline is above it."""

    def otherwise(study: Results) -> str:
        (card,) = (c for c in answers(study)[0].cards if c.task == "type")
        return card.otherwise

    best = results.best_runs[None]["type", "200"].run
    other = next(g.name for g in results.groups if g.name != best.group)
    assert best.method == "full"
    assert "more steps" not in otherwise(results)
    assert "more steps" not in otherwise(with_faults(results, other, 5, still_improving=1))
    short = otherwise(with_faults(results, best.group, 4, still_improving=1, best_is_last=1))
    assert f"`{best.group}` with `full` may score otherwise after more steps" in short
    assert "still improving in 4 of 5 trials" in short


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ((0.98, 0.004), "training loss at the end 0.98 v. 0.004"),  # one side does not fit
        ((0.15, 0.05), ""),
        ((0.02, 0.0004), ""),  # both fit
        ((0.6, 0.5), ""),  # neither fits
    ],
)
def test_a_side_that_fits_its_labels_much_less_is_a_confound(results, losses, said) -> None:
    one, other = next(
        (c.a.group, c.b.group)
        for c in results.contrasts
        if (c.task, c.method) == ("type", "full") and c.a.group != c.b.group
    )
    for run, loss in zip((one, other), losses, strict=True):
        results = with_faults(results, run, 5, last_train_loss=loss)
    (contrast,) = (
        c
        for c in results.contrasts
        if (c.task, c.method, c.a.group, c.b.group) == ("type", "full", one, other)
    )
    marks = [confound(c) for c in contrast.confounds if c.name == "fitted unequally"]
    assert marks == ([f"fitted unequally: {said}"] if said else [])


def test_one_probe_without_a_minimum_is_enough(results) -> None:
    trials = [
        replace(trial, converged=0)
        if (trial.run, trial.task, trial.method) == ("encoder_mlm", "tag", "linear_probe")
        and trial.finetune_seed == 1
        else trial
        for trial in results.trials
    ]
    probed = replace(results, trials=trials).scores.cell(
        "encoder_mlm", "tag", "linear_probe", "200"
    )
    assert probed is not None
    [warning] = warnings(probed)
    assert "1 of 5" in warning


def table_of(results: Results) -> dict[tuple[str, str], dict[str, str]]:
    ((_, rows),) = convergence(results.scores.cells).tables.items()
    return {(row["run"], row["method"]): row for row in rows}


def test_the_table_shows_how_far_inside_the_range_a_choice_lies(results) -> None:
    edged = with_faults(results, "encoder_mlm", 3, num_tries=3, at_edge=1)
    edged = replace(edged, trials=[replace(t, at_edge=t.at_edge or 0) for t in edged.trials])
    rows = table_of(edged)
    one = rows["encoder_mlm", "full"]
    assert one["tried"] == "3" and one["at an edge of those tried"] == "20%"  # 3 of 15 trials
    assert one["kept epoch"] == "5.0 of 6.0"
    plain = table_of(results)
    assert plain["encoder_mlm", "full"]["at an edge of those tried"] == "\N{EN DASH}"
    assert plain["encoder_mlm", "linear_probe"]["kept epoch"] == "\N{EN DASH}"
    assert plain["tfidf", "classical"]["tried"] == "4"
    assert all(row.keys() == one.keys() for row in plain.values())
