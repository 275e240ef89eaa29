"""The threshold below which a question gets no answer (SQuAD 2.0; Rajpurkar et al. 2018)."""

from collections.abc import Sequence

import numpy as np

from stages.evaluation import metrics
from stages.tasks._task import Predicted

ROUNDING = 1e-9  # means of a metric that differ by less are equal


def best_threshold(metric: str, gold: Sequence[str], predicted: Sequence[Predicted]) -> float:
    """Returns the threshold on the margin that maximises the mean of the metric over these rows
    (BERT; Devlin et al. 2019, section 4.3). Among equally good thresholds it is the one nearest to
    0, where a model is trained to decide. It is infinite if an answer to all rows, or to none, is
    best.

    It is 0 if every question must have an answer: then no prediction has a margin.
    """
    margins = np.array([each.margin for each in predicted if each.margin is not None])
    if not len(margins):
        return 0.0
    gains = np.array(
        [
            metrics.score(metric, [right], [each.prediction]) - metrics.score(metric, [right], [""])
            for right, each in zip(gold, predicted, strict=True)
        ]
    )
    order = np.argsort(margins, kind="stable")
    known = np.unique(margins)
    below, above = known[:-1], known[1:]
    between = np.where(np.isinf(below), above - 1, (below + above) / 2)  # -inf: no span
    thresholds = np.array([0.0, *between, -np.inf, np.inf])
    first = np.searchsorted(margins[order], thresholds)  # the first row with an answer
    totals = np.append(np.cumsum(gains[order][::-1])[::-1], 0.0)[first]
    good = thresholds[totals >= totals.max() - ROUNDING * len(gains)]
    return float(good[np.abs(good).argmin()])
