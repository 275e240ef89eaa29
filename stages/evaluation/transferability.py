"""Estimates of how well a checkpoint would do on a task, from its frozen states and their labels.

Nothing is trained. N is the number of states, D their width, C the number of classes.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

NEIGHBOURS = 3
WIDEST = 30.0  # of the search for alpha / beta, in powers of e beyond the squared singular values
GRID = 25  # points of that search before it is refined
RANK = 1e-15  # eigenvalues below this share of the largest count as 0; as in Ibrahim et al.


class HScore(NamedTuple):
    value: float
    by_chance: float  # its mean over all orders of the labels

    @property
    def above_chance(self) -> float:
        return self.value - self.by_chance


def h_score(states: Float[np.ndarray, "N D"], classes: Int[np.ndarray, " N"]) -> HScore:
    """tr(cov(f)^-1 cov(E[f|y])): how much of the variance of the states lies between the classes,
    in units of the variance of all (Bao et al. 2019). It is between 0 and C - 1.

    The covariance of all states is shrunk towards a multiple of the identity (Ledoit and Wolf
    2004), and that between classes by as much (Ibrahim et al. 2022): the plain one is singular
    where D exceeds N.

    Labels that say nothing have an H-score as well, up to (C - 1) D / N: the less the covariance is
    shrunk, the higher, and that differs between models. So it comes with what chance gives: sums of
    n drawn without replacement from N centred states have the covariance n (1 - n / N) N / (N - 1)
    times that of the states.
    """
    # Which takes longer to import than torch, and is not wanted where the store has all estimates.
    from sklearn.covariance import ledoit_wolf

    number, num_classes = len(states), len(np.unique(classes))
    centred = states.astype(np.float64) - states.mean(axis=0, dtype=np.float64)
    total, shrinkage = ledoit_wolf(centred, assume_centered=True)
    means = np.stack(
        [
            centred[classes == c].sum(axis=0) / np.sqrt((classes == c).sum())
            for c in np.unique(classes)
        ]
    )
    inverse = (1 - shrinkage) * np.linalg.pinv(total, rcond=RANK, hermitian=True) / (number - 1)
    found = np.einsum("cd,de,ce->", means, inverse, means)
    covariance = centred.T @ centred / number
    by_chance = (num_classes - 1) * number / (number - 1) * (inverse * covariance).sum()
    return HScore(float(found), float(by_chance))


def logme(states: Float[np.ndarray, "N D"], targets: Float[np.ndarray, "N K"]) -> float:
    """The log evidence of a Bayesian linear regression from states to targets, per state, at the
    precisions alpha of its weights and beta of its noise that maximise it; the mean over the K
    targets, which are one-hot classes or one number (You et al. 2021).

    The evidence is that of y ~ N(0, I / beta + F F' / alpha). With t = alpha / beta the best beta
    is N / r(t), and what is left to search is t alone. The fixed point that the paper iterates is a
    stationary point of the same function.
    """
    left, singular, _ = np.linalg.svd(states.astype(np.float64), full_matrices=False)
    inside = np.square(left.T @ targets)  # [min(N, D), K]
    outside = np.maximum(np.square(targets).sum(axis=0) - inside.sum(axis=0), 0.0)
    found = [
        _highest_evidence(np.square(singular), each, rest, len(states))
        for each, rest in zip(inside.T, outside, strict=True)
    ]
    return float(np.mean(found)) / len(states)


def _highest_evidence(
    variances: Float[np.ndarray, " R"], inside: Float[np.ndarray, " R"], outside: float, number: int
) -> float:
    """Over t, of a target with these squared projections on the states' directions and beside."""
    from scipy.optimize import minimize_scalar  # as above

    largest = max(float(variances.max()), np.finfo(float).tiny)

    def lost(log_t: float) -> float:
        kept = 1 / (1 + variances / (largest * np.exp(log_t)))  # t / (t + variance)
        residual = max(float((inside * kept).sum() + outside), np.finfo(float).tiny)
        return -0.5 * (np.log(kept).sum() + number * (np.log(number / residual / 2 / np.pi) - 1))

    points = np.linspace(-WIDEST, WIDEST, GRID)
    losses = [lost(point) for point in points]
    best = int(np.argmin(losses))
    bounds = points[max(best - 1, 0)], points[min(best + 1, GRID - 1)]
    refined = minimize_scalar(lost, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    return -min(losses[best], float(refined.fun))


def one_hot(classes: Int[np.ndarray, " N"]) -> Float[np.ndarray, "N C"]:
    """A column for each class that occurs."""
    return (classes[:, None] == np.unique(classes)).astype(np.float64)


def nearest_neighbours(
    states: Float[np.ndarray, "N D"], classes: Int[np.ndarray, " N"], *, at_once: int = 256
) -> float:
    """The accuracy of the majority of the ``NEIGHBOURS`` nearest other states, by Euclidean
    distance (Puigcerver et al. 2021; as many neighbours as in transformer-ranker). No state is its
    own neighbour; of equal distances and of classes with equal votes the first counts.
    """
    points, index = states.astype(np.float64), np.unique(classes, return_inverse=True)[1]
    points = points - points.mean(axis=0)  # fewer digits are lost in the differences of squares
    norms, number = np.square(points).sum(axis=1), min(NEIGHBOURS, len(points) - 1)
    votes_of, right = np.eye(index.max() + 1), 0
    for start in range(0, len(points), at_once):
        some = np.arange(start, min(start + at_once, len(points)))
        distances = points[some] @ points.T  # of squares, less a number for each row
        distances *= -2
        distances += norms
        distances[some - start, some] = np.inf
        votes = np.zeros((len(some), votes_of.shape[1]))
        for _ in range(number):  # several times as fast as to partition each row
            nearest = distances.argmin(axis=1)
            votes += votes_of[index[nearest]]
            distances[some - start, nearest] = np.inf
        right += int((votes.argmax(axis=1) == index[some]).sum())
    return right / len(points)
