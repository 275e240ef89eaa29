"""Estimates of how well a checkpoint would do on a task, from frozen states and their labels, and
the tables of them.

Nothing is trained. N is the number of states, D their width, C the number of classes.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from stages.evaluation.records import CheckpointRow

ESTIMATES = ("logme", "h_score")
WIDEST = 30.0  # log(alpha / beta) is searched up to this far from the log of the largest variance
GRID = 25  # points of that search before it is refined
RANK = 1e-15  # eigenvalues below this share of the largest count as 0, as in Ibrahim et al.


@dataclass(frozen=True, kw_only=True)
class EstimateRecord(CheckpointRow):
    """An estimate of how well a checkpoint would do on a task. Higher is better."""

    estimate: str  # one of ESTIMATES
    value: float | None  # None if the estimate is not defined for the task
    num_rows: int  # rows of train
    num_states: int
    flops: int  # for computing the states, which all estimates share
    reason: str  # why the value is None, or ""


def h_score(states: Float[np.ndarray, "N D"], classes: Int[np.ndarray, " N"]) -> float:
    """The H-score tr(cov(f)^-1 cov(E[f|y])): the variance of the states between the classes,
    relative to their total variance (Bao et al. 2019). It is between 0 and C - 1.

    The covariance of all states is singular if D exceeds N. So it is shrunk towards a multiple of
    the identity (Ledoit and Wolf 2004), and the covariance between classes by the same factor
    (Ibrahim et al. 2022).

    Even random labels have a positive H-score, up to (C - 1) D / N.
    """
    # scikit-learn takes longer to import than torch, and is not needed if the store has all
    # estimates.
    from sklearn.covariance import ledoit_wolf

    centred = states.astype(np.float64) - states.mean(axis=0, dtype=np.float64)
    total, shrinkage = ledoit_wolf(centred, assume_centered=True)
    members = [centred[classes == c] for c in np.unique(classes)]
    means = np.stack([own.sum(axis=0) / np.sqrt(len(own)) for own in members])
    inverse = np.linalg.pinv(total, rcond=RANK, hermitian=True) / (len(states) - 1)
    return float((1 - shrinkage) * np.einsum("cd,de,ce->", means, inverse, means))


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
    on the singular directions of the states, and ``outside`` is the rest of its squared norm."""
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
