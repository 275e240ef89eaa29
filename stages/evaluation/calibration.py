"""Calibration: how near the probability that a model gives its predictions is to the share of them
that is right."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

NUM_BINS = 15


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Of predictions with a probability each, all in 0..1."""

    accuracy: float
    mean_probability: float  # more than the accuracy: overconfident
    calibration_error: float


def calibration(
    gold: Sequence[str], predicted: Sequence[str], probabilities: Sequence[float | None]
) -> Calibration | None:
    """None unless every prediction has a probability.

    The error is the expected calibration error (Guo et al. 2017, eq. 3): the distance between
    accuracy and mean probability in each of 15 bins of equal width, a mean weighted by their rows.
    It is above 0 by chance where a bin has few rows: about 0.8 sqrt(p (1 - p) / n) in a bin of n
    rows with the probability p.
    """
    given = [each for each in probabilities if each is not None]
    if len(given) < len(probabilities):
        return None
    p = np.array(given)
    right = np.array([g == f for g, f in zip(gold, predicted, strict=True)], dtype=float)
    # Bin m of M has the probabilities above (m - 1) / M, up to m / M.
    bins = np.clip(np.ceil(p * NUM_BINS) - 1, 0, NUM_BINS - 1).astype(int)
    distances = np.bincount(bins, right - p, NUM_BINS)  # each times the bin's rows
    return Calibration(
        accuracy=float(right.mean()),
        mean_probability=float(p.mean()),
        calibration_error=float(np.abs(distances).sum() / len(p)),
    )
