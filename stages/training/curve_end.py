"""The end of a pretraining's loss curve: how fast the validation loss still fell."""

import math
from collections.abc import Mapping
from statistics import linear_regression

import numpy as np


def slope_at_end(losses: Mapping[int, float]) -> float | None:
    """The slope of the validation loss, in nats per doubling of the steps; negative if it falls.

    It is a least-squares fit of the loss against log2(step) over the validations in the last half
    of the steps; None if this half has only one. ``losses`` has the loss of each validation by
    step, the last at the end of training. A decaying learning rate falls to 0 in this half and
    lowers the loss, so the slope does not forecast the loss of a training with twice the steps
    (benchmarks/pretraining_rates.md).
    """
    last = max(losses)
    points = {math.log2(step): loss for step, loss in losses.items() if 2 * step >= last}
    if len(points) < 2:
        return None
    return linear_regression(list(points), list(points.values())).slope


def last_quarter_share(first: float, losses: Mapping[int, float]) -> float | None:
    """Returns the share of the fall in loss that came in the last quarter of the steps; None if
    there is one validation, or no fall.

    The fall is from ``first``, the loss before the first step, to the loss of the last validation.
    Between two validations the loss is interpolated. The share exceeds 1 if the loss was above
    ``first`` when the last quarter began.
    """
    last = max(losses)
    if len(losses) < 2 or first <= losses[last]:
        return None
    before = np.interp(0.75 * last, [0, *losses], [first, *losses.values()])
    return float((before - losses[last]) / (first - losses[last]))
