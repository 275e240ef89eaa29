"""The metric and the loss on the validation rows of a task, computed in one pass."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from stages.evaluation import metrics
from stages.kinds._cells import Row
from stages.models._heads import ModelWithHead
from stages.tasks._task import Example, Task
from stages.text.batch import Batch
from stages.training.device import Device
from stages.trials.prediction import predict
from stages.trials.thresholds import best_threshold


class Validated(NamedTuple):
    """The metric and the loss on the validation rows, and the threshold that gives this metric."""

    value: float
    loss: float
    threshold: float


def validate(
    task: Task,
    model: ModelWithHead,
    rows: Sequence[Row],
    examples: Sequence[Example],
    *,
    metric: str,
    device: Device,
) -> Validated:
    """Returns the metric on all ``rows`` at the threshold that is best for it, and the loss as if
    their ``examples`` were one batch."""
    losses, targets = defaultdict[str, float](float), Counter[str]()

    def add(batch: Batch) -> None:
        for term, (weight, loss_sum) in task.loss(model, batch).items():
            losses[term] += weight * float(loss_sum)
        targets.update(batch.num_targets)

    predicted = predict(task, model, rows, examples, device, also=add)
    gold = [task.kind.answer(row) for row in rows]
    threshold = best_threshold(metric, gold, predicted)
    value = metrics.score(metric, gold, [each.at(threshold) for each in predicted])
    loss = sum(losses[term] / max(targets[term], 1) for term in losses)
    return Validated(value, loss, threshold)
