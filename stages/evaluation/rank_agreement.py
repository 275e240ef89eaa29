"""How well one number ranks runs as another does: weighted Kendall's tau, with an interval."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from stages.core.seeding import stream

FEWEST = 4  # runs for a tau; groups of runs for its interval
RESAMPLES = 2000


def weighted_tau(
    estimate: Float[np.ndarray, " n"],
    score: Float[np.ndarray, " n"],
    counts: Int[np.ndarray, "B n"],
) -> Float[np.ndarray, " B"]:
    """Tau of each resample, in which a run stands ``counts`` times: ``scipy.stats.weightedtau``,
    without a loop over resamples. NaN if all of a resample tie.

    A pair counts the more the better its two runs: 1 / rank of the one plus 1 / rank of the other,
    ranked by the estimate and by the score, of which it is the mean (Vigna 2015). Copies of a run
    tie in both, so such pairs do not count.
    """
    by_estimate = np.sign(estimate[:, None] - estimate)
    by_score = np.sign(score[:, None] - score)
    harmonic = np.concatenate([[0], np.cumsum(1 / np.arange(1, counts.sum(axis=1).max() + 1))])
    pairs = counts @ (by_estimate * by_score)  # concordant less discordant ones of each run
    untied = counts @ np.abs(by_estimate), counts @ np.abs(by_score)
    tau = np.zeros(len(counts))
    for first, second in ((estimate, score), (score, estimate)):
        best_first = np.lexsort((second, first))[::-1]
        ends = counts[:, best_first].cumsum(axis=1)
        weights = np.empty(counts.shape)
        weights[:, best_first] = harmonic[ends] - harmonic[ends - counts[:, best_first]]
        norms = [(weights * each).sum(axis=1) for each in untied]
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
    """Weighted tau and its interval; None of fewer than ``FEWEST`` runs, or if all tie.

    The interval is that of the bootstrap (percentiles) over groups of runs, since runs that differ
    in their seeds alone are no independent ones. None of fewer than ``FEWEST`` groups.
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
    found = weighted_tau(*values, counts)
    known = found[np.isfinite(found)]
    beyond = (1 - confidence) / 2
    low, high = np.quantile(known, [beyond, 1 - beyond]).tolist()
    return tau, low, high
