"""Inference speed of an adapted model on new texts, from encoded text to prediction."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import Any

from stages.methods._method import Predictor
from stages.models._heads import ModelWithHead
from stages.tasks._cells import Row
from stages.training.device import Device
from stages.trials.frozen import PREDICTED_AT_ONCE
from stages.trials.prediction import predict

WARM_UP, TIMED = 3, 20  # texts, one at a time
IN_BATCHES = 2 * PREDICTED_AT_ONCE  # texts
LONGEST_S = 1.0  # for texts one at a time: generation is slow, and fewer texts suffice


@dataclass(frozen=True)
class Speed:
    """Inference speed; tokens are those of the input."""

    latency_s: float  # median time of one text
    texts_per_s: float  # in batches
    tokens_per_s: float  # in batches


def measure_speed(
    predictor: Predictor,
    model: ModelWithHead,
    rows: Sequence[Row],
    examples: Sequence[Any],  # as the predictor encodes the rows
    device: Device,
) -> Speed:
    """Returns the speed of prediction, measured on some rows one at a time and on others in
    batches, because a predictor may remember texts. If there are no others, all rows are
    in batches."""
    alone = _spread(rows, min(WARM_UP + TIMED, max(len(rows) // 2, 1)))
    together = _spread([row for row in rows if row not in alone] or rows, IN_BATCHES)
    encoded = {id: [*each] for id, each in groupby(examples, key=lambda example: example.id)}

    def seconds(some: Sequence[Row]) -> float:
        theirs = [example for row in some for example in encoded[row["id"]]]
        began = time.perf_counter()
        predict(predictor, model, some, theirs, device)
        return time.perf_counter() - began

    taken: list[float] = []
    for row in alone:
        taken.append(seconds([row]))
        if sum(taken[WARM_UP:]) > LONGEST_S:
            break
    in_batches = seconds(together)
    num_tokens = sum(len(example.tokens) for row in together for example in encoded[row["id"]])
    return Speed(
        latency_s=median(taken[WARM_UP:] or taken),
        texts_per_s=len(together) / in_batches,
        tokens_per_s=num_tokens / in_batches,
    )


def _spread(rows: Sequence[Row], number: int) -> list[Row]:
    """Returns ``number`` evenly spaced rows, or all rows if there are fewer."""
    number = min(number, len(rows))
    return [rows[i * len(rows) // number] for i in range(number)]
