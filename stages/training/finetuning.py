"""The batches of fine-tuning (labelled examples, reordered in each epoch); epoch counts."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from stages.core.params import Adaptation
from stages.core.seeding import stream
from stages.methods._method import Lesson
from stages.tasks._task import Example
from stages.text.batch import Batch

BUCKET_BATCHES = 8  # the examples of this many batches are sorted by length together


E = TypeVar("E", bound=Any)  # an Example of a task, or a prompt: its ``tokens`` are [T]


class FinetuningData:
    """The micro-batches of each step. Each epoch has every example once, in a new random order. The
    examples of a batch have similar lengths, so that there is little padding."""

    def __init__(
        self,
        examples: Sequence[Example],
        task: Lesson,
        *,
        batch_examples: int,
        seed: int,
    ) -> None:
        self._examples, self._task, self._seed = examples, task, seed
        self._batch_examples = batch_examples
        self._lengths = np.array([len(example.tokens) for example in examples])
        self._ordered: tuple[int, list[np.ndarray]] = (-1, [])  # latest epoch and its batches
        self.steps_per_epoch = -(-len(examples) // batch_examples)

    def micro_batches(self, step: int) -> list[Batch]:
        epoch, place = divmod(step, self.steps_per_epoch)
        known, batches = self._ordered  # one tuple, as threads share this object
        if known != epoch:
            batches = self._epoch_batches(epoch)
            self._ordered = epoch, batches
        chosen = [self._examples[i] for i in batches[place]]
        return [self._task.collate(chosen, rngs=[])]

    def _epoch_batches(self, epoch: int) -> list[np.ndarray]:
        rng, size = stream(self._seed, "examples", epoch), self._batch_examples
        order = rng.permutation(len(self._examples))
        bucket = np.arange(len(order)) // (BUCKET_BATCHES * size)
        order = order[np.lexsort((self._lengths[order], bucket))]
        return [order[i * size : (i + 1) * size] for i in rng.permutation(self.steps_per_epoch)]


def in_order_of_length(examples: Sequence[E], *, batch_examples: int) -> Iterator[list[E]]:
    """Yields all examples in batches of similar lengths, shortest first, for prediction."""
    ordered = sorted(examples, key=lambda each: len(each.tokens))
    for at in range(0, len(ordered), batch_examples):
        yield ordered[at : at + batch_examples]


def steps_per_epoch(settings: Adaptation, num_examples: int) -> int:
    return -(-num_examples // settings.batch_examples)


def max_epochs(settings: Adaptation, num_examples: int) -> int:
    """Returns ``num_epochs``, or more if ``min_steps`` need more epochs; ``patience`` may end
    training sooner."""
    needed = -(-settings.min_steps // steps_per_epoch(settings, num_examples))
    return max(settings.num_epochs, needed)


def warmup_epochs(settings: Adaptation, num_examples: int) -> float:
    per_epoch = steps_per_epoch(settings, num_examples)
    steps = round(settings.warmup_fraction * max_epochs(settings, num_examples) * per_epoch)
    return steps / per_epoch
