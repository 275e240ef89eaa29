"""What a trial chooses on its validation rows: the epoch that is kept, the end of the training, and
a threshold on the margins of predictions. If the margin is below the threshold, a question gets no
answer (SQuAD 2.0; Rajpurkar et al. 2018), and a text gets the other of two labels."""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from stages.evaluation import metrics
from stages.evaluation.records import EpochRecord
from stages.tasks._task import Predicted

LATE = 0.25  # share of the epochs at the end that count as late
LOWER = 0.01  # share of the first epoch's validation loss; a smaller fall may be noise
UNFITTED = 0.05  # of the training loss's fall; if more of it is late, training was too short
ROUNDING = 1e-9  # means of a metric that differ by less count as equal
MOST_COMPARED = 200  # thresholds between two labels; each costs a pass over the rows


class Validated(NamedTuple):
    """The metric and the loss on the validation rows, with the threshold that gives this metric and
    the predictions at this threshold."""

    value: float
    loss: float
    threshold: float
    predicted: list[Predicted]
    merit: tuple[float, float]  # higher for a better metric or, if it is equal, a lower loss


def decided(predicted: Sequence[Predicted], threshold: float) -> list[Predicted]:
    """Returns the predictions at a threshold on their margins."""
    return [each._replace(prediction=each.at(threshold)) for each in predicted]


def best_threshold(metric: str, gold: Sequence[str], predicted: Sequence[Predicted]) -> float:
    """Returns the threshold on the margin that maximises the metric over these rows (BERT; Devlin
    et al. 2019, section 4.3). Among equally good thresholds it is the one nearest to 0, where a
    model is trained to decide. It is infinite if all rows, or none, should be below it.

    It is 0 if no prediction has a margin. If predictions below the threshold become no answer, the
    metric is a mean over rows and all thresholds are compared. For two labels at most
    ``MOST_COMPARED`` thresholds are compared.
    """
    margins = np.array([each.margin for each in predicted if each.margin is not None])
    if not len(margins):
        return 0.0
    distinct = np.unique(margins)
    below, above = distinct[:-1], distinct[1:]
    between = np.where(np.isinf(below), above - 1, (below + above) / 2)  # a margin of -inf: no span
    two_labels = any(each.otherwise for each in predicted)
    if two_labels:
        # About equally many distinct margins lie between neighbouring thresholds.
        number = min(len(between), MOST_COMPARED)
        between = between[np.linspace(0, len(between) - 1, number).round().astype(int)]
    thresholds = np.array([0.0, *between, -np.inf, np.inf])
    if two_labels:
        answers = ([each.at(threshold) for each in predicted] for threshold in thresholds)
        totals = np.array([metrics.score(metric, gold, some) for some in answers])
        equal = ROUNDING
    else:
        score = partial(metrics.score, metric)
        gains = np.array(
            [
                score([right], [each.prediction]) - score([right], [""])
                for right, each in zip(gold, predicted, strict=True)
            ]
        )
        order = np.argsort(margins, kind="stable")
        first = np.searchsorted(margins[order], thresholds)  # the first row with an answer
        totals = np.append(np.cumsum(gains[order][::-1])[::-1], 0.0)[first]
        equal = ROUNDING * len(gains)
    best = thresholds[totals >= totals.max() - equal]
    return float(best[np.abs(best).argmin()])


def at_edge(chosen: float, tried: Sequence[float]) -> int | None:
    """Returns 1 if the chosen value is the smallest or largest of several values tried, so that a
    better one may lie beyond them, else 0; None if only one value was tried."""
    return int(chosen in (min(tried), max(tried))) if len(tried) > 1 else None


def merit(metric: str, value: float, loss: float) -> tuple[float, float]:
    """Returns the ``Validated.merit`` of a metric and a loss."""
    return metrics.merit(metric, value), -loss


def best_epoch(curve: Sequence[EpochRecord], metric: str) -> int:
    """Returns the number of the first epoch with the best metric and then loss on validation."""
    merits = (merit(metric, epoch.validation_metric, epoch.validation_loss) for epoch in curve)
    return max(zip(merits, curve, strict=True), key=lambda each: each[0])[1].epoch


def is_over(
    curve: Sequence[EpochRecord], patience: int | str, metric: str, *, warmup: float
) -> bool:
    """Returns whether neither the metric nor the loss has improved in the last ``patience`` epochs,
    all after the ``warmup`` (in epochs). A patience of ``none`` never ends."""
    merit, loss, improved = -math.inf, math.inf, 0
    for epoch in curve:
        of_epoch = metrics.merit(metric, epoch.validation_metric)
        if of_epoch > merit or epoch.validation_loss < loss or epoch.epoch <= warmup:
            improved = epoch.epoch
        merit, loss = max(of_epoch, merit), min(epoch.validation_loss, loss)
    return isinstance(patience, int) and curve[-1].epoch - improved >= patience


def still_improving(curve: Sequence[EpochRecord], metric: str) -> bool:
    """Returns whether training ended too early, which the last quarter of the epochs shows: the
    validation loss fell clearly (``LOWER``) below its earlier minimum, or the best epoch by
    ``metric`` is among them while the training loss still fell (by more than ``UNFITTED`` of its
    whole fall). A best epoch at the end alone is no sign: on a plateau, any epoch may be the
    best."""
    late = math.ceil(LATE * len(curve))
    before, after = curve[:-late], curve[-late:]
    if not before:
        return True  # a single epoch
    lowest = min(epoch.validation_loss for epoch in before)
    new = min(epoch.validation_loss for epoch in after)
    if lowest - new > LOWER * abs(curve[0].validation_loss):
        return True
    fall = curve[0].train_loss - curve[-1].train_loss
    late_fall = before[-1].train_loss - curve[-1].train_loss
    return best_epoch(curve, metric) >= after[0].epoch and late_fall > UNFITTED * abs(fall)
