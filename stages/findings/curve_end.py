"""The end of a pretraining's loss curve: how fast the validation loss still fell."""

import math
from collections.abc import Mapping
from statistics import linear_regression


def slope_at_end(losses: Mapping[int, float]) -> float | None:
    """The slope of the validation loss, in nats per doubling of the steps; negative if it falls.

    It is a least-squares fit of the loss against log2(step) over the validations in the last half
    of the steps; None if this half has only one. ``losses`` has the loss of each validation by
    step, the last at the end of training. A decaying learning rate falls to 0 in this half and
    lowers the loss, so the slope does not forecast the loss of a training with twice the steps
    (benchmarks/pretraining_rates.py).
    """
    last = max(losses)
    points = {math.log2(step): loss for step, loss in losses.items() if 2 * step >= last}
    if len(points) < 2:
        return None
    return linear_regression(list(points), list(points.values())).slope
