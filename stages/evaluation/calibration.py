"""Calibration: how close the probabilities of a model's predictions are to its accuracy."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from stages.core.keys import CellKey

NUM_BINS = 15


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How well the probabilities of predictions are calibrated; all numbers are in 0..1."""

    accuracy: float
    mean_probability: float  # above the accuracy if the model is overconfident
    calibration_error: float


@dataclass(frozen=True, kw_only=True)
class ReliabilityRecord:
    """One bin of a reliability diagram: the predictions of all trials of a cell whose probability
    is in it."""

    run: str
    method: str
    label_budget: str
    number: int  # of predictions
    mean_probability: float
    accuracy: float


def calibration(
    gold: Sequence[str], predicted: Sequence[str], probabilities: Sequence[float | None]
) -> Calibration | None:
    """Returns the calibration, or None if a prediction has no probability.

    The error is the expected calibration error (Guo et al. 2017, eq. 3): the distance between
    accuracy and mean probability in each of 15 bins of equal width, averaged with the bins' numbers
    of rows as weights. In a bin of n rows with probability p, chance alone gives an error of about
    0.8 sqrt(p (1 - p) / n).
    """
    given = [each for each in probabilities if each is not None]
    if len(given) < len(probabilities):
        return None
    p = np.array(given)
    right = _right(gold, predicted)
    distances = np.bincount(_bins(p), right - p, NUM_BINS)  # times the bin's number of rows
    return Calibration(
        accuracy=float(right.mean()),
        mean_probability=float(p.mean()),
        calibration_error=float(np.abs(distances).sum() / len(p)),
    )


def reliability(
    trials: Iterable[tuple[CellKey, Sequence[str], Sequence[str], Sequence[float | None]]],
) -> Iterator[ReliabilityRecord]:
    """Yields the non-empty bins of each cell, in ascending order of probability. A trial is given
    as its cell, the right answers, the predictions and their probabilities. Trials with a
    prediction without probability are left out."""
    sums: dict[CellKey, np.ndarray] = defaultdict(lambda: np.zeros((3, NUM_BINS)))
    for cell, gold, predicted, probabilities in trials:
        if None not in probabilities:
            p = np.array(probabilities, dtype=float)
            for row, weights in enumerate((np.ones_like(p), p, _right(gold, predicted))):
                sums[cell][row] += np.bincount(_bins(p), weights, NUM_BINS)
    for cell, bins in sums.items():
        for number, probability, right in bins.T[bins[0] > 0]:
            yield ReliabilityRecord(
                run=cell.run,
                method=cell.method,
                label_budget=cell.label_budget,
                number=int(number),
                mean_probability=probability / number,
                accuracy=right / number,
            )


def _right(gold: Sequence[str], predicted: Sequence[str]) -> Float[np.ndarray, " n"]:
    return np.array([g == f for g, f in zip(gold, predicted, strict=True)], dtype=float)


def _bins(p: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Returns the index of each probability's bin. Bin m of M, from 1, contains the probabilities
    above (m - 1) / M, up to m / M."""
    return np.clip(np.ceil(p * NUM_BINS) - 1, 0, NUM_BINS - 1).astype(int)
