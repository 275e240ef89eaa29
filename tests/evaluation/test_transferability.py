"""Estimates of how well a checkpoint would do, compared with another library."""

import csv
from pathlib import Path

import pytest

from stages.evaluation.transferability import h_score, logme, one_hot
from tests.evaluation.labelled_states import CASES, WIDE, Case

EVERY = [*CASES[1:6:2], *WIDE[1:]]


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.name)
def test_estimates_are_those_of_transformer_ranker(case: Case) -> None:
    """The estimates are those of ``benchmarks/estimates_elsewhere.py``. The comments say where
    transformer-ranker differs from the papers."""
    states, classes = case.draw()
    with Path(__file__).with_name("transformer_ranker.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["case"] == case.name]
    theirs = {row["estimate"]: float(row["value"]) for row in rows}
    assert h_score(states, classes) == pytest.approx(theirs["h_score"], rel=2e-7)
    evidence = logme(states, one_hot(classes))
    if case.number > case.width:
        # transformer-ranker ends its search at a change of 1e-3.
        assert evidence == pytest.approx(theirs["logme"], abs=1e-5)
        of_number = logme(states, case.number_of_each()[:, None])
        assert of_number == pytest.approx(theirs["logme of a number"], abs=1e-5)
    else:  # It includes log(alpha) of directions without a state, so its value is too high.
        assert theirs["logme"] > evidence + 1
