"""What an adapted model predicts for rows, whichever way its task cuts them into examples."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from stages.models._heads import Headed
from stages.tasks._task import Example, Predicted, Task
from stages.training.device import Device
from stages.training.finetuning import in_order_of_length

PREDICTED_AT_ONCE = 64  # examples in a batch


@torch.no_grad()
def predict(
    task: Task,
    model: Headed,
    rows: Sequence[Mapping[str, Any]],
    examples: list[Example],
    device: Device,
) -> list[Predicted]:
    """A prediction for each row, in their order, from those for its examples; with scores where
    the task gives them and the row is one example."""
    model.eval()
    found: dict[str, dict[int, Predicted]] = defaultdict(dict)
    for part in in_order_of_length(examples, batch_examples=PREDICTED_AT_ONCE):
        batch = task.collate(part, rngs=[]).to(device.torch)
        with device.autocast():
            predictions = task.predict_scored(model, batch, part)
        for example, prediction in zip(part, predictions, strict=True):
            found[example.id][example.window] = prediction
    return [_combined(task, row, found[row["id"]]) for row in rows]


def _combined(task: Task, row: Mapping[str, Any], windows: Mapping[int, Predicted]) -> Predicted:
    predictions = [windows[window] for window in sorted(windows)]
    prediction = task.combine(row, [each.prediction for each in predictions])
    return Predicted(prediction, predictions[0].scores if len(predictions) == 1 else None)
