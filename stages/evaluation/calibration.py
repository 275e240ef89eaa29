"""Calibration: how close the probabilities of a model's predictions are to its accuracy."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

NUM_BINS = 15


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How well the probabilities of predictions are calibrated; all numbers are in 0..1."""

    accuracy: float
    mean_probability: float  # above the accuracy if the model is overconfident
    calibration_error: float


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
    right = np.array([g == f for g, f in zip(gold, predicted, strict=True)], dtype=float)
    # Bin m of M contains the probabilities above (m - 1) / M, up to m / M.
    bins = np.clip(np.ceil(p * NUM_BINS) - 1, 0, NUM_BINS - 1).astype(int)
    distances = np.bincount(bins, right - p, NUM_BINS)  # times the bin's number of rows
    return Calibration(
        accuracy=float(right.mean()),
        mean_probability=float(p.mean()),
        calibration_error=float(np.abs(distances).sum() / len(p)),
    )
