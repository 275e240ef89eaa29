"""Estimates, each compared with its definition, another library or a planted truth."""

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from stages.evaluation.transferability import (
    h_score,
    logme,
    one_hot,
)
from tests.evaluation.labelled_states import CASES, WIDE, Case

EVERY = [*CASES[1:6:2], *WIDE[1:]]


@pytest.fixture(scope="module")
def elsewhere() -> dict[tuple[str, str], float]:
    """Returns the estimates of transformer-ranker (``benchmarks/estimates_elsewhere.py``)."""
    with Path(__file__).with_name("transformer_ranker.csv").open() as file:
        return {(r["case"], r["estimate"]): float(r["value"]) for r in csv.DictReader(file)}


# transformer-ranker ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.name)
def test_estimates_are_those_of_transformer_ranker(case: Case, elsewhere) -> None:
    """The comments say where transformer-ranker differs from the papers."""
    states, classes = case.draw()
    theirs = {name: value for (of_case, name), value in elsewhere.items() if of_case == case.name}
    assert h_score(states, classes) == pytest.approx(theirs["h_score"], rel=2e-7)
    evidence = logme(states, one_hot(classes))
    if case.number > case.width:
        # transformer-ranker ends its search at a change of 1e-3.
        assert evidence == pytest.approx(theirs["logme"], abs=1e-5)
        of_number = logme(states, case.number_of_each()[:, None])
        assert of_number == pytest.approx(theirs["logme of a number"], abs=1e-5)
    else:  # It includes log(alpha) of directions without a state, so its value is too high.
        assert theirs["logme"] > evidence + 1


# Definitions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.name)
def test_h_score_is_its_definition(case: Case) -> None:
    """Writes out every sum: the covariances of Bao et al., the shrinkage of Ledoit and Wolf."""
    states, classes = case.draw()
    number, width = states.shape
    centred = states - sum(states) / number
    covariance = sum(np.outer(x, x) for x in centred) / number
    level = np.trace(covariance) / width
    distance = ((covariance - level * np.eye(width)) ** 2).sum()
    error = sum(((np.outer(x, x) - covariance) ** 2).sum() for x in centred) / number**2
    shrinkage = min(error / distance, 1)
    shrunk = (1 - shrinkage) * covariance + shrinkage * level * np.eye(width)
    between = np.zeros((width, width))
    for c in range(case.num_classes):
        mean = centred[classes == c].mean(axis=0)
        between += (classes == c).sum() * np.outer(mean, mean) / (number - 1)
    expected = np.trace(np.linalg.pinv(shrunk) @ ((1 - shrinkage) * between))
    assert h_score(states, classes) == pytest.approx(expected, rel=1e-9)


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


# What estimates measure ---------------------------------------------------------------------------


@pytest.mark.parametrize("width", [16, 300])
def test_estimates_rise_with_the_separation_of_classes(width: int) -> None:
    estimates_by_separation = []
    for separation in (0.0, 3.0, 6.0, 12.0, 24.0):
        states, classes = Case(240, width, 4, separation).draw()
        targets = one_hot(classes)
        estimates_by_separation.append((h_score(states, classes), logme(states, targets)))
    for values in zip(*estimates_by_separation, strict=True):
        assert list(values) == sorted(values) and values[0] < values[-1]


@pytest.mark.parametrize("width", [8, 80])
def test_estimates_do_not_depend_on_shift_and_rotation(width: int) -> None:
    """H-score is invariant to both. LogME has no intercept, so a shift changes
    it."""
    states, classes = Case(60, width, 3, 4.0).draw()
    rotation = np.linalg.qr(np.random.default_rng(2).normal(size=(width, width)))[0]
    for changed in (states @ rotation, 3 * states, states + 5):
        assert h_score(changed, classes) == pytest.approx(h_score(states, classes), rel=1e-6)
    for changed in (states @ rotation, 3 * states):
        expected = logme(states, one_hot(classes))
        assert logme(changed, one_hot(classes)) == pytest.approx(expected, abs=1e-6)


def test_estimates_of_constant_states_are_finite() -> None:
    classes = np.arange(30) % 3
    constant = np.ones((30, 5))
    assert h_score(constant, classes) == 0
    assert np.isfinite(logme(constant, one_hot(classes)))
    assert np.isfinite(logme(np.zeros((30, 5)), one_hot(classes)))
