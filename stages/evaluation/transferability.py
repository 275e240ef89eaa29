"""Estimates of how well a checkpoint would do on a task, from frozen states and their labels.

Nothing is trained. N is the number of states, D their width, C the number of classes.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

NEIGHBOURS = 3
WIDEST = 30.0  # log(alpha / beta) is searched up to this far from the log of the largest variance
GRID = 25  # points of that search before it is refined
RANK = 1e-15  # eigenvalues below this share of the largest count as 0, as in Ibrahim et al.


class HScore(NamedTuple):
    value: float
    by_chance: float  # mean value over all permutations of the labels

    @property
    def above_chance(self) -> float:
        return self.value - self.by_chance


def h_score(states: Float[np.ndarray, "N D"], classes: Int[np.ndarray, " N"]) -> HScore:
    """The H-score tr(cov(f)^-1 cov(E[f|y])): the variance of the states between the classes,
    relative to their total variance (Bao et al. 2019). It is between 0 and C - 1.

    The covariance of all states is singular if D exceeds N. So it is shrunk towards a multiple of
    the identity (Ledoit and Wolf 2004), and the covariance between classes by the same factor
    (Ibrahim et al. 2022).

    Even random labels have a positive H-score, up to (C - 1) D / N. It is higher if the covariance
    is shrunk less, and shrinkage differs between models. So the score comes with its expectation
    for random labels. That is computed from the covariance of a sum of n states, drawn without
    replacement from N centred states: n (1 - n / N) N / (N - 1) times the covariance of states.
    """
    # scikit-learn takes longer to import than torch, and is not needed if the store has all
    # estimates.
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
    score = np.einsum("cd,de,ce->", means, inverse, means)
    covariance = centred.T @ centred / number
    by_chance = (num_classes - 1) * number / (number - 1) * (inverse * covariance).sum()
    return HScore(float(score), float(by_chance))


def logme(states: Float[np.ndarray, "N D"], targets: Float[np.ndarray, "N K"]) -> float:
    """LogME: the maximum log evidence per state of a Bayesian linear regression from states to
    targets, over the precisions alpha of its weights and beta of its noise. It is the mean over the
    K targets, which are one-hot classes or one number (You et al. 2021).

    The model is y ~ N(0, I / beta + F F' / alpha). Given t = alpha / beta, the best beta is N
    over the regularised squared error, so only t is searched. The fixed point that the paper
    iterates is a stationary point of the same function.
    """
    left, singular, _ = np.linalg.svd(states.astype(np.float64), full_matrices=False)
    inside = np.square(left.T @ targets)  # [min(N, D), K]
    outside = np.maximum(np.square(targets).sum(axis=0) - inside.sum(axis=0), 0.0)
    evidences = [
        _highest_evidence(np.square(singular), within, rest, len(states))
        for within, rest in zip(inside.T, outside, strict=True)
    ]
    return float(np.mean(evidences)) / len(states)


def _highest_evidence(
    variances: Float[np.ndarray, " R"], inside: Float[np.ndarray, " R"], outside: float, number: int
) -> float:
    """Returns the highest log evidence over t. ``inside`` are the squared projections of a target
    on the singular directions of the states, and ``outside`` is the rest of its squared
    norm."""
    from scipy.optimize import minimize_scalar  # imported here for the reason given in ``h_score``

    largest = max(float(variances.max()), np.finfo(float).tiny)

    def lost(log_t: float) -> float:
        unexplained = 1 / (1 + variances / (largest * np.exp(log_t)))  # t / (t + variance)
        residual = max(float((inside * unexplained).sum() + outside), np.finfo(float).tiny)
        log_beta = np.log(number / residual / 2 / np.pi)
        return -0.5 * (np.log(unexplained).sum() + number * (log_beta - 1))

    points = np.linspace(-WIDEST, WIDEST, GRID)
    losses = [lost(point) for point in points]
    best = int(np.argmin(losses))
    bounds = points[max(best - 1, 0)], points[min(best + 1, GRID - 1)]
    refined = minimize_scalar(lost, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    return -min(losses[best], float(refined.fun))


def one_hot(classes: Int[np.ndarray, " N"]) -> Float[np.ndarray, "N C"]:
    """Returns one-hot classes, with one column for each class that occurs."""
    return (classes[:, None] == np.unique(classes)).astype(np.float64)


def nearest_neighbours(
    states: Float[np.ndarray, "N D"], classes: Int[np.ndarray, " N"], *, at_once: int = 256
) -> float:
    """The accuracy of k nearest neighbours: the majority vote of the ``NEIGHBOURS`` nearest other
    states by Euclidean distance (Puigcerver et al. 2021; transformer-ranker has the same number of
    neighbours). Ties go to the first state or class.
    """
    points, index = states.astype(np.float64), np.unique(classes, return_inverse=True)[1]
    points = points - points.mean(axis=0)  # loses fewer digits in the differences of squares
    norms, number = np.square(points).sum(axis=1), min(NEIGHBOURS, len(points) - 1)
    votes_of, right = np.eye(index.max() + 1), 0
    for start in range(0, len(points), at_once):
        some = np.arange(start, min(start + at_once, len(points)))
        distances = points[some] @ points.T  # becomes squared distances minus a constant per row
        distances *= -2
        distances += norms
        distances[some - start, some] = np.inf
        votes = np.zeros((len(some), votes_of.shape[1]))
        for _ in range(number):  # several times as fast as np.partition
            nearest = distances.argmin(axis=1)
            votes += votes_of[index[nearest]]
            distances[some - start, nearest] = np.inf
        right += int((votes.argmax(axis=1) == index[some]).sum())
    return right / len(points)
