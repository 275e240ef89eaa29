"""Row scores: the contribution of each test row to a metric. Their mean is the metric.

If the metric is a mean over rows, they are the rows' own scores. Other metrics are linearised: the
score of row i is ``value + (n - 1) (value - value without i)``, shifted so that the mean is the
value (the infinitesimal and the delete-one jackknife; Efron and Tibshirani 1993, chapters 11 and
21). The standard deviation of the scores divided by sqrt(n) is the standard error of the metric
over test sets. The same formula for the differences of two models' scores gives the standard error
of the paired difference.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Float32, Int

from stages.evaluation import metrics
from stages.tasks._metric import Metric, Sums

Texts = Sequence[str]
NUM_GROUPS = 50  # groups of rows to leave out, for a metric that is not a function of sums


def row_scores(metric: str, gold: Texts, predicted: Texts) -> Float32[np.ndarray, " n"]:
    """Returns the score of each row on the metric of this name."""
    value = metrics.score(metric, gold, predicted)
    if not np.isfinite(value):
        return np.full(len(gold), value, dtype=np.float32)
    definition = metrics.metric_of(metric)
    influence = (
        _left_out(definition, value, gold, predicted)
        if definition.sums is None
        else _by_sums(definition.sums, definition.sums.counts(gold, predicted))
    )
    # Without some row the metric may be undefined (if it is the only row of a label) or infinite
    # (a perplexity too large for a float).
    influence = np.where(np.isfinite(influence), influence, 0.0)
    return (value + influence - influence.mean()).astype(np.float32)


def by_groups(
    rows: Float[np.ndarray, "trials n"], groups: Int[np.ndarray, " rows"]
) -> Float[np.ndarray, "trials G"]:
    """Returns scores of groups of rows (documents, packages) in place of rows, which then count as
    a cluster (Cameron and Miller 2015, section II). Their mean is the mean of the rows. The rows
    themselves are returned if ``groups`` is empty."""
    if not groups.size or not rows.size:
        return rows
    ids = np.unique(groups, return_inverse=True)[1]
    number, means = ids.max() + 1, rows.mean(axis=1, keepdims=True)
    sums = (rows - means) @ (ids[:, None] == np.arange(number))
    return means + number / rows.shape[1] * sums


def _by_sums(sums: Sums, counts: Float[np.ndarray, "n K"]) -> Float[np.ndarray, " n"]:
    total = counts.sum(axis=0, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return (len(counts) - 1) * (sums.value(total) - sums.value(total - counts))


def _left_out(
    metric: Metric, value: float, gold: Texts, predicted: Texts
) -> Float[np.ndarray, " n"]:
    """Returns the influence of each row, computed by leaving out one group of rows at a time.

    All models have the same groups, so that differences are paired. The rows of a group share a
    value, which is scaled to give the standard error of the delete-a-group jackknife.
    """
    num_groups = min(NUM_GROUPS, len(gold))
    if num_groups < 2:
        return np.zeros(len(gold))
    group = np.arange(len(gold)) % num_groups
    without = [
        metric.value([gold[i] for i in rows], [predicted[i] for i in rows])
        for left_out in range(num_groups)
        for rows in [np.flatnonzero(group != left_out).tolist()]
    ]
    scale = ((num_groups - 1) * (len(gold) - 1)) ** 0.5
    with np.errstate(invalid="ignore"):
        return scale * (value - np.asarray(without, dtype=float))[group]
