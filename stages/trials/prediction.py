"""Prediction for rows with an adapted model; a row may be more than one example."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from stages.kinds._cells import Row
from stages.methods._method import Predictor
from stages.models._heads import ModelWithHead
from stages.tasks._task import Predicted, Task
from stages.text.batch import Batch
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
    *,
    also: Callable[[Batch], None] = lambda batch: None,
) -> list[Predicted]:
    """Returns a prediction for each row, in the order of ``rows``, combined from the predictions
    for its examples.

    A prediction has scores if the task gives any and the row is one example, and a margin if a
    threshold decides about it. ``also`` is called with each batch and can use its states without
    computing them again.
    """
    model.eval()
    by_row: dict[str, dict[int, Predicted]] = defaultdict(dict)
    with device.autocast():  # one context for all batches casts each weight only once
        for part in in_order_of_length(examples, batch_examples=PREDICTED_AT_ONCE):
            batch = predictor.collate(part, rngs=[]).to(device.torch)
            with _computed_once(model.backbone):
                if isinstance(predictor, Task):
                    predictions = predictor.predict_scored(model, batch, part)
                else:
                    predictions = [*map(Predicted, predictor.predict(model, batch, part))]
                also(batch)
            for example, prediction in zip(part, predictions, strict=True):
                by_row[example.id][example.window] = prediction
    return [_combined(predictor, row, by_row[row["id"]]) for row in rows]


@contextmanager
def _computed_once(backbone: nn.Module) -> Iterator[None]:
    """Computes the states of a batch only once within the context."""
    states: dict[int, tuple[Batch, Float[Tensor, "B T D"]]] = {}
    compute = backbone.forward

    def forward(batch: Batch) -> Float[Tensor, "B T D"]:
        if id(batch) not in states:
            states[id(batch)] = batch, compute(batch)  # kept, so that no other batch gets its id
        return states[id(batch)][1]

    backbone.forward = forward
    try:
        yield
    finally:
        del backbone.forward  # the method of the class is used again


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
