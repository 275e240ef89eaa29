"""When a question is given no answer (SQuAD 2.0; Rajpurkar et al. 2018)."""

from collections.abc import Sequence

import numpy as np

from stages.evaluation import metrics
from stages.tasks._task import Predicted

ROUNDING = 1e-9  # of means of a metric: what is nearer to each other is as good


def best_threshold(metric: str, gold: Sequence[str], predicted: Sequence[Predicted]) -> float:
    """The margin below which there is no answer, for the best mean of the metric over these rows
    (BERT; Devlin et al. 2019, section 4.3). Of thresholds as good it is the nearest to 0, where a
    model is trained to decide; it is infinite where an answer to all or to none of them is best.

    0 where every question must have an answer: then no prediction has a margin.
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
    between = np.where(np.isinf(below), above - 1, (below + above) / 2)  # -inf: no span at all
    thresholds = np.array([0.0, *between, -np.inf, np.inf])
    first = np.searchsorted(margins[order], thresholds)  # from which on there are answers
    totals = np.append(np.cumsum(gains[order][::-1])[::-1], 0.0)[first]
    good = thresholds[totals >= totals.max() - ROUNDING * len(gains)]
    return float(good[np.abs(good).argmin()])
