"""Agreement of two rankings of runs: weighted Kendall's tau, with an interval."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from stages.core.seeding import stream

FEWEST = 4  # minimum number of runs for a tau, and of groups of runs for its interval
RESAMPLES = 2000


def weighted_tau(
    estimate: Float[np.ndarray, " n"],
    score: Float[np.ndarray, " n"],
    counts: Int[np.ndarray, "B n"],
) -> Float[np.ndarray, " B"]:
    """Returns tau for each of B resamples, in which a run occurs ``counts`` times.

    It equals ``scipy.stats.weightedtau`` (Vigna 2015), without a loop over resamples. Pairs of good
    runs count more: a pair has the weight 1 / rank of one run plus 1 / rank of the other. The
    result is the mean of tau with ranks by the estimate and of tau with ranks by the score. Copies
    of a run tie in both rankings, so their pairs do not count. Tau is NaN for a resample in which
    all runs tie.
    """
    by_estimate = np.sign(estimate[:, None] - estimate)
    by_score = np.sign(score[:, None] - score)
    harmonic = np.concatenate([[0], np.cumsum(1 / np.arange(1, counts.sum(axis=1).max() + 1))])
    pairs = counts @ (by_estimate * by_score)  # for each run: concordant minus discordant pairs
    untied = counts @ np.abs(by_estimate), counts @ np.abs(by_score)
    tau = np.zeros(len(counts))
    for first, second in ((estimate, score), (score, estimate)):
        best_first = np.lexsort((second, first))[::-1]
        ends = counts[:, best_first].cumsum(axis=1)
        weights = np.empty(counts.shape)
        weights[:, best_first] = harmonic[ends] - harmonic[ends - counts[:, best_first]]
        norms = [(weights * num_pairs).sum(axis=1) for num_pairs in untied]
        with np.errstate(invalid="ignore"):
            tau += (weights * pairs).sum(axis=1) / np.sqrt(norms[0] * norms[1]) / 2
    return tau


def agreement(
    estimate: Sequence[float],
    score: Sequence[float],
    groups: Sequence[str],
    *,
    confidence: float,
    seed: int,
) -> tuple[float | None, float | None, float | None]:
    """Returns weighted tau and the ends of its interval.

    Tau is None for fewer than ``FEWEST`` runs, or if all runs tie. The interval is the percentile
    bootstrap over groups of runs, because runs that differ only in their seeds are not independent.
    Its ends are None for fewer than ``FEWEST`` groups.
    """
    values = np.array(estimate, dtype=float), np.array(score, dtype=float)
    if len(groups) < FEWEST:
        return None, None, None
    tau = float(weighted_tau(*values, np.ones((1, len(groups)), dtype=int))[0])
    names, group = np.unique(groups, return_inverse=True)
    if not np.isfinite(tau):
        return None, None, None
    if len(names) < FEWEST:
        return tau, None, None
    drawn = stream(seed, "agreement").integers(len(names), size=(RESAMPLES, len(names)))
    counts = np.stack([(drawn == i).sum(axis=1) for i in range(len(names))], axis=1)[:, group]
    resampled = weighted_tau(*values, counts)
    beyond = (1 - confidence) / 2
    low, high = np.quantile(resampled[np.isfinite(resampled)], [beyond, 1 - beyond]).tolist()
    return tau, low, high
