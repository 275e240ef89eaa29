"""Prediction for rows with an adapted model; a row may be more than one example."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from stages.methods._method import Predictor
from stages.models._heads import ModelWithHead
from stages.tasks._cells import Row
from stages.tasks._task import Predicted, Task
from stages.text.batch import Batch
from stages.training.device import Device
from stages.training.finetuning import in_order_of_length
from stages.trials.frozen import PREDICTED_AT_ONCE, FrozenStates, OnStates, computed_once


@torch.no_grad()
def predict(
    predictor: Predictor,
    model: ModelWithHead,
    rows: Sequence[Row],
    examples: Sequence[Any],  # as the predictor encodes the rows
    device: Device,
    *,
    frozen: FrozenStates | None = None,
    also: Callable[[ModelWithHead, Batch], None] = lambda model, batch: None,
) -> list[Predicted]:
    """Returns a prediction for each row, in the order of ``rows``, combined from the predictions
    for its examples.

    A prediction has scores if the task gives any and the row is one example, and a margin if a
    threshold decides about it. With ``frozen`` states, only the head is computed. ``also`` is
    called with the model and each batch, and can use its states without computing them again.
    """
    model.eval()
    if frozen:
        frozen.compute(model, examples)
        model = ModelWithHead(model.backbone, OnStates(model.head))
    by_row: dict[str, dict[int, Predicted]] = defaultdict(dict)
    with device.autocast():  # one context for all batches casts each weight only once
        for part in in_order_of_length(examples, batch_examples=PREDICTED_AT_ONCE):
            batch = predictor.collate(part, rngs=[]).to(device.torch)
            with computed_once(model.backbone, frozen.of(part) if frozen else None):
                if isinstance(predictor, Task):
                    predictions = predictor.predict_scored(model, batch, part)
                else:
                    predictions = [*map(Predicted, predictor.predict(model, batch, part))]
                also(model, batch)
            for example, prediction in zip(part, predictions, strict=True):
                by_row[example.id][example.window] = prediction
    return [_combined(predictor, row, by_row[row["id"]]) for row in rows]


def _combined(predictor: Predictor, row: Row, windows: Mapping[int, Predicted]) -> Predicted:
    predictions = [windows[window] for window in sorted(windows)]
    if predictions[0].margin is not None:  # only if the row is one example
        return predictions[0]
    given = [each.prediction for each in predictions]
    return Predicted(
        predictor.combine(row, given),
        predictions[0].scores if len(predictions) == 1 else None,
        predictor.margin(given) if isinstance(predictor, Task) else None,
    )
