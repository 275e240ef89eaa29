"""Prediction for rows with an adapted model; a row may be more than one example."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from stages.kinds._cells import Row
from stages.methods._method import Predictor
from stages.models._heads import ModelWithHead
from stages.tasks._task import Predicted, Task
from stages.training.device import Device
from stages.training.finetuning import in_order_of_length

PREDICTED_AT_ONCE = 64  # examples in a batch


@torch.no_grad()
def predict(
    predictor: Predictor,
    model: ModelWithHead,
    rows: Sequence[Row],
    examples: Sequence[Any],  # as the predictor encodes the rows
    device: Device,
) -> list[Predicted]:
    """A prediction for each row, in their order, combined from those for its examples.

    It has scores if the task gives any and the row is one example, and a margin if the task allows
    no answer.
    """
    model.eval()
    found: dict[str, dict[int, Predicted]] = defaultdict(dict)
    for part in in_order_of_length(examples, batch_examples=PREDICTED_AT_ONCE):
        batch = predictor.collate(part, rngs=[]).to(device.torch)
        with device.autocast():
            if isinstance(predictor, Task):
                predictions = predictor.predict_scored(model, batch, part)
            else:
                predictions = [*map(Predicted, predictor.predict(model, batch, part))]
        for example, prediction in zip(part, predictions, strict=True):
            found[example.id][example.window] = prediction
    return [_combined(predictor, row, found[row["id"]]) for row in rows]


def _combined(predictor: Predictor, row: Row, windows: Mapping[int, Predicted]) -> Predicted:
    predictions = [windows[window] for window in sorted(windows)]
    given = [each.prediction for each in predictions]
    return Predicted(
        predictor.combine(row, given),
        predictions[0].scores if len(predictions) == 1 else None,
        predictor.margin(given) if isinstance(predictor, Task) else None,
    )
