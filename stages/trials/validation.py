"""The metric and the loss on the validation rows of a task, computed in one pass, and the threshold
on the margins of predictions. If the margin is below the threshold, a question gets no answer
(SQuAD 2.0; Rajpurkar et al. 2018), and a text gets the other of two labels."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from stages.evaluation import metrics
from stages.models._heads import ModelWithHead
from stages.tasks._cells import Row
from stages.tasks._task import Example, Predicted, Task
from stages.text.batch import Batch
from stages.training.device import Device
from stages.trials.frozen import FrozenStates
from stages.trials.prediction import predict

ROUNDING = 1e-9  # means of a metric that differ by less count as equal
MOST_COMPARED = 200  # thresholds between two labels; each costs a pass over the rows


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
    frozen: FrozenStates | None = None,
) -> Validated:
    """Returns the metric on all ``rows`` at the threshold that is best for it, and the loss as if
    their ``examples`` were one batch."""
    losses, targets = defaultdict[str, float](float), Counter[str]()

    def add(model: ModelWithHead, batch: Batch) -> None:
        for term, (weight, loss_sum) in task.loss(model, batch).items():
            losses[term] += weight * float(loss_sum)
        targets.update(batch.num_targets)

    predicted = predict(task, model, rows, examples, device, frozen=frozen, also=add)
    gold = [task.kind.answer(row) for row in rows]
    threshold = best_threshold(metric, gold, predicted)
    value = metrics.score(metric, gold, [each.at(threshold) for each in predicted])
    loss = sum(losses[term] / max(targets[term], 1) for term in losses)
    return Validated(value, loss, threshold)


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
    if any(each.otherwise for each in predicted):
        # About equally many distinct margins lie between neighbouring thresholds.
        number = min(len(between), MOST_COMPARED)
        between = between[np.linspace(0, len(between) - 1, number).round().astype(int)]
        thresholds = np.array([0.0, *between, -np.inf, np.inf])
        answers = ([each.at(threshold) for each in predicted] for threshold in thresholds)
        merits = np.array([metrics.score(metric, gold, some) for some in answers])
        return _nearest_to_0(thresholds[merits >= merits.max() - ROUNDING])
    gains = np.array(
        [
            metrics.score(metric, [right], [each.prediction]) - metrics.score(metric, [right], [""])
            for right, each in zip(gold, predicted, strict=True)
        ]
    )
    order = np.argsort(margins, kind="stable")
    thresholds = np.array([0.0, *between, -np.inf, np.inf])
    first = np.searchsorted(margins[order], thresholds)  # the first row with an answer
    totals = np.append(np.cumsum(gains[order][::-1])[::-1], 0.0)[first]
    return _nearest_to_0(thresholds[totals >= totals.max() - ROUNDING * len(gains)])


def _nearest_to_0(thresholds: Float[np.ndarray, " n"]) -> float:
    return float(thresholds[np.abs(thresholds).argmin()])
