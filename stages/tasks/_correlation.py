"""Correlations between predicted and right numbers."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from stages.tasks._metric import Sums

SMALLEST_SHARE = 1e-12  # values with a smaller relative spread count as constant


def pearson(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Returns Pearson's correlation over all rows; 0 if the numbers of either side are constant and
    so say nothing about the rows (SciPy returns NaN)."""
    return correlation(_numbers(gold), _numbers(predicted))


def _moments(gold: Sequence[str], predicted: Sequence[str]) -> Float[np.ndarray, "n 6"]:
    """Returns 1, x, y, xx, yy and xy for each row; x and y are deviations from the mean."""
    x, y = (values - values.mean() for values in (_numbers(gold), _numbers(predicted)))
    return np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y], axis=-1)


def _of_moments(sums: Float[np.ndarray, "*sets 6"]) -> Float[np.ndarray, "*sets"]:
    num, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spread = [square - one * one / num for one, square in ((x, xx), (y, yy))]
    varies = (spread[0] > SMALLEST_SHARE * xx) & (spread[1] > SMALLEST_SHARE * yy)
    below = np.sqrt(np.where(varies, spread[0] * spread[1], 1))
    return np.where(varies, (xy - x * y / num) / below, 0.0)


def spearman(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Returns Pearson's correlation of the ranks, 0 if either side is constant."""
    return correlation(ranks(_numbers(gold)), ranks(_numbers(predicted)))


def correlation(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> float:
    """Returns Pearson's correlation, 0 if one of the two is constant."""
    # Squares of very small or very large values would underflow or overflow.
    x, y = (values / (np.abs(values).max() or 1.0) for values in (x, y))
    deviations = [values - values.mean() for values in (x, y)]
    norms = [float(np.linalg.norm(each)) for each in deviations]
    for norm, values in zip(norms, (x, y), strict=True):
        if norm <= SMALLEST_SHARE * float(np.linalg.norm(values)):
            return 0.0
    return float(np.clip(deviations[0] @ deviations[1] / (norms[0] * norms[1]), -1, 1))


def ranks(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Returns ranks from 1; equal values share the mean of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def _numbers(texts: Sequence[str]) -> Float[np.ndarray, " n"]:
    return np.array([float(text) for text in texts])


def _linearised(gold: Sequence[str], predicted: Sequence[str]) -> Float[np.ndarray, "n 2"]:
    """Returns two numbers for each row: Spearman's correlation of all rows plus the row's influence
    on it, and 1. The mean of the first over a set of rows approximates the correlation of the set.

    A row has influence by its own ranks, and by raising the ranks of all rows with larger values
    (Croux and Dehon 2010).
    """
    x, y = ranks(_numbers(gold)), ranks(_numbers(predicted))
    (xx, of_xx), (yy, of_yy), (xy, of_xy) = (
        _covariance(one, other) for one, other in ((x, x), (y, y), (x, y))
    )
    if not xx or not yy:
        return np.stack([np.zeros(len(x)), np.ones(len(x))], axis=-1)
    value = xy / np.sqrt(xx * yy)
    influence = of_xy / np.sqrt(xx * yy) - value / 2 * (of_xx / xx + of_yy / yy)
    return np.stack([value + influence, np.ones(len(x))], axis=-1)


def _covariance(
    x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]
) -> tuple[float, Float[np.ndarray, " n"]]:
    """Returns the covariance of ranks, all divided by n, and each row's influence on it."""
    a, b = ((values - values.mean()) / len(values) for values in (x, y))
    moved = _above(x, b) + _above(y, a)
    value = float((a * b).mean())
    return value, a * b + moved - 3 * value


def _above(
    values: Float[np.ndarray, " n"], weights: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Returns for each row the summed weights of rows with larger values, plus half the weights of
    rows with an equal value (itself included), divided by the number of rows."""
    _, place = np.unique(values, return_inverse=True)
    of_value = np.bincount(place, weights)
    return (of_value[::-1].cumsum()[::-1] - of_value / 2)[place] / len(values)


PEARSON = Sums(_moments, _of_moments)
SPEARMAN = Sums(_linearised, lambda sums: sums[..., 0] / sums[..., 1])
