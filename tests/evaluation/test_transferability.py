"""Estimates, each compared with its definition, another library or a planted truth."""

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

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


@pytest.mark.parametrize("case", [CASES[1], WIDE[1]], ids=lambda case: case.name)
def test_logme_is_the_highest_evidence(case: Case) -> None:
    """Searches both precisions for the highest density of the targets as one normal vector."""
    states, classes = case.draw()
    products, number = states @ states.T, len(states)

    def highest(target: np.ndarray) -> float:
        def lost(logs: np.ndarray) -> float:
            noise, weights = np.exp(logs)
            covariance = noise * np.eye(number) + weights * products
            sign, log_determinant = np.linalg.slogdet(covariance)
            if sign <= 0:
                return np.inf
            distance = target @ np.linalg.solve(covariance, target)
            return 0.5 * (number * np.log(2 * np.pi) + log_determinant + distance)

        scale = float(np.square(target).mean())
        starts = [np.log([scale * share, scale / 10]) for share in (0.01, 0.5)]
        return -min(minimize(lost, start, method="Nelder-Mead").fun for start in starts)

    columns = [*one_hot(classes).T[:2], case.number_of_each()]
    for target in columns:
        expected = highest(target) / number
        assert logme(states, target[:, None]) == pytest.approx(expected, abs=2e-5)
    assert logme(states, np.stack(columns, axis=1)) == pytest.approx(
        np.mean([logme(states, target[:, None]) for target in columns])
    )
