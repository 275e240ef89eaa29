"""Prediction for rows with an adapted model, from frozen states that are computed once, and its
speed. A row may be more than one example."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from statistics import median
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from stages.core.artifacts import Json
from stages.methods._method import Predictor
from stages.models._heads import LinearHead, ModelWithHead, PooledHead
from stages.tasks._cells import Row
from stages.tasks._task import Example, Predicted, Task
from stages.text.batch import IGNORE_INDEX, Batch
from stages.training.device import Device
from stages.training.finetuning import in_order_of_length

PREDICTED_AT_ONCE = 64  # examples in a batch
# Texts whose speed is measured: one at a time, and in batches.
WARM_UP, TIMED, IN_BATCHES = 3, 20, 2 * PREDICTED_AT_ONCE
LONGEST_S = 1.0  # for texts one at a time: generation is slow, and fewer texts suffice


class FrozenStates:
    """What the linear layer of a head reads of each example: one pooled state [D], or the states of
    its tokens [T D]. They are computed once for each example, in float32."""

    def __init__(self, task: Task, device: Device) -> None:
        assert device.precision == "float32", "states of new texts would differ"
        self.task, self.device = task, device
        self._known = dict[str, Tensor]()  # by the key of the example

    @torch.no_grad()
    def compute(
        self, model: ModelWithHead, examples: Sequence[Example], *, anew: bool = False
    ) -> None:
        """Computes the states of the examples that are not known or, with ``anew``, of all: padding
        changes the last bit of a state, and nothing may depend on which trials ran before."""
        model.eval()
        missing = [each for each in examples if anew or each.key not in self._known]
        given = list[Tensor]()
        keep = model.head.linear.register_forward_pre_hook(
            lambda _, inputs: given.append(inputs[0])
        )
        for part in in_order_of_length(missing, batch_examples=PREDICTED_AT_ONCE):
            given.clear()
            self.task.loss(model, self.task.collate(part, rngs=[]).to(self.device.torch))
            for example, states in zip(part, given[0], strict=True):
                size = len(example.tokens) if states.dim() == 2 else len(states)
                self._known[example.key] = states[:size].clone()
        keep.remove()

    def of(self, examples: Sequence[Example]) -> Float[Tensor, "R T D"]:
        """Returns the states of computed examples, padded with 0; T is 1 if they are pooled."""
        states = [self._known[example.key] for example in examples]
        if states[0].dim() == 1:
            return torch.stack(states).unsqueeze(1)
        return nn.utils.rnn.pad_sequence(states, batch_first=True)

    def labelled(
        self, examples: Sequence[Example]
    ) -> tuple[Float[np.ndarray, "N D"], np.ndarray, Float[np.ndarray, " N"]]:
        """Returns the states that have a label, the labels (classes [N], numbers [N], or the labels
        that each text has [N L]) and the weights of the labels in the loss."""
        parts = list[tuple[np.ndarray, ...]]()
        for example in examples:
            states = self._known[example.key].cpu().numpy()
            states = states.reshape(-1, states.shape[-1])
            # In multi-label classification, all labels are of one state.
            labels = example.labels.reshape(len(states), -1)
            if self.task.kind.name != "multi_label":
                labels = labels[:, 0]
            known = ~np.isnan(labels) if labels.dtype.kind == "f" else labels != IGNORE_INDEX
            known = known.reshape(len(states), -1).all(axis=1)
            weights = np.ones(len(states)) if example.weights is None else example.weights
            parts.append((states[known], labels[known], weights[known]))
        states, labels, weights = map(np.concatenate, zip(*parts, strict=True))
        return states, labels, weights


class _OnStates(nn.Module):
    """The linear layer of a head, for states of ``FrozenStates``."""

    def __init__(self, head: LinearHead) -> None:
        super().__init__()
        self.linear, self.is_pooled = head.linear, isinstance(head, PooledHead)

    def forward(self, states: Float[Tensor, "R T D"], *others: Tensor) -> Tensor:
        return self.linear(states[:, 0] if self.is_pooled else states)


@contextmanager
def _computed_once(backbone: nn.Module, known: Tensor | None) -> Iterator[None]:
    """Within this context the backbone computes the states of a batch only once or, with ``known``
    states, not at all. Other batches (a decoder's input and target) are computed each time."""
    compute, first = backbone.forward, list[tuple[Batch, Tensor]]()

    def forward(batch: Batch) -> Tensor:
        if known is not None:
            return known
        if not first:
            first.append((batch, compute(batch)))
        return first[0][1] if batch is first[0][0] else compute(batch)

    backbone.forward = forward
    try:
        yield
    finally:
        del backbone.forward  # the method of the class is used again


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
        model = ModelWithHead(model.backbone, _OnStates(model.head))
    by_row: dict[str, dict[int, Predicted]] = defaultdict(dict)
    with device.autocast():  # one context for all batches casts each weight only once
        for part in in_order_of_length(examples, batch_examples=PREDICTED_AT_ONCE):
            batch = predictor.collate(part, rngs=[]).to(device.torch)
            with _computed_once(model.backbone, frozen.of(part) if frozen else None):
                given = predictor.predict(model, batch, part)
                predictions = [p if isinstance(p, Predicted) else Predicted(p) for p in given]
                also(model, batch)
            for example, prediction in zip(part, predictions, strict=True):
                by_row[example.id][example.window] = prediction
    combined = list[Predicted]()
    for row in rows:
        windows = [prediction for _, prediction in sorted(by_row[row["id"]].items())]
        if windows[0].margin is not None:  # only if the row is one example
            combined.append(windows[0])
            continue
        answer = predictor.combine(row, [each.prediction for each in windows])
        scores = windows[0].scores if len(windows) == 1 else None
        combined.append(answer if isinstance(answer, Predicted) else Predicted(answer, scores))
    return combined


def measured_speed(
    predictor: Predictor,
    model: ModelWithHead,
    rows: Sequence[Row],
    examples: Sequence[Any],  # as the predictor encodes the rows
    device: Device,
) -> Json:
    """Returns the speed of prediction on new texts, as fields of ``CostRecord``: the median time of
    a text alone, and the texts and input tokens per second in batches. They are measured on
    different rows, because a predictor may remember texts; if there is only one row, on this."""
    num_alone = min(WARM_UP + TIMED, max(len(rows) // 2, 1))
    alone, together = rows[:num_alone], (rows[num_alone:] or rows)[:IN_BATCHES]
    encoded = {id: [*some] for id, some in groupby(examples, key=lambda example: example.id)}

    def seconds(some: Sequence[Row]) -> float:
        of_rows = [example for row in some for example in encoded[row["id"]]]
        began = time.perf_counter()
        predict(predictor, model, some, of_rows, device)
        return time.perf_counter() - began

    taken = list[float]()
    for row in alone:
        taken.append(seconds([row]))
        if sum(taken[WARM_UP:]) > LONGEST_S:
            break
    in_batches = seconds(together)
    num_tokens = sum(len(example.tokens) for row in together for example in encoded[row["id"]])
    return {
        "latency_s": round(median(taken[WARM_UP:] or taken), 6),
        "texts_per_s": round(len(together) / in_batches, 1),
        "tokens_per_s": round(num_tokens / in_batches, 1),
    }
