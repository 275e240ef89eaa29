"""The batches of fine-tuning, which are labelled examples in epochs, and the number of epochs."""

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from stages.core.params import Adaptation
from stages.core.seeding import stream
from stages.tasks._task import Example, Task
from stages.text.batch import Batch

BUCKET_BATCHES = 8  # batches are cut from this many at a time, sorted by length


@runtime_checkable
class Encoded(Protocol):
    """An input to predict for: an Example of a task, or a prompt. A row may have several inputs."""

    @property
    def id(self) -> str: ...  # of the row

    @property
    def tokens(self) -> np.ndarray: ...  # int64 [T]

    @property
    def window(self) -> int: ...  # the number of this input in its row

    @property
    def num_cut(self) -> int: ...  # tokens that were left out


E = TypeVar("E", bound=Encoded)


class FinetuningData:
    """Each epoch has every example once, in an order drawn for the epoch. The examples of a batch
    have similar lengths, so that there is little padding."""

    def __init__(
        self, examples: Sequence[Example], task: Task, *, batch_examples: int, seed: int
    ) -> None:
        self._examples, self._task, self._seed = examples, task, seed
        self._batch_examples = self._micro_batch_examples = batch_examples
        self._lengths = np.array([len(example.tokens) for example in examples])
        self._ordered: tuple[int, list[np.ndarray]] = (-1, [])  # the last epoch that was asked for
        self.steps_per_epoch = -(-len(examples) // batch_examples)

    def micro_batches(self, step: int) -> list[Batch]:
        epoch, place = divmod(step, self.steps_per_epoch)
        known, batches = self._ordered  # read and written at once: threads share this object
        if known != epoch:
            batches = self._epoch_batches(epoch)
            self._ordered = epoch, batches
        chosen = [self._examples[i] for i in batches[place]]
        number = self._micro_batch_examples
        parts = (chosen[at : at + number] for at in range(0, len(chosen), number))
        return [self._task.collate(part, rngs=[]) for part in parts]

    @property
    def at_once(self) -> str:
        return f"batch_examples: {self._micro_batch_examples}"

    def halve(self) -> bool:
        """Halves the examples in memory at once, but not in a step; returns False if there is only
        one."""
        if self._micro_batch_examples == 1:
            return False
        self._micro_batch_examples = -(-self._micro_batch_examples // 2)
        return True

    def _epoch_batches(self, epoch: int) -> list[np.ndarray]:
        rng = stream(self._seed, "examples", epoch)
        order = rng.permutation(len(self._examples))
        bucket = np.arange(len(order)) // (BUCKET_BATCHES * self._batch_examples)
        order = order[np.lexsort((self._lengths[order], bucket))]
        batches = [order[at : at + self._batch_examples] for at in self._starts(len(order))]
        return [batches[i] for i in rng.permutation(len(batches))]

    def _starts(self, number: int) -> range:
        return range(0, number, self._batch_examples)


def in_order_of_length(examples: Sequence[E], *, batch_examples: int) -> Iterator[list[E]]:
    """Yields all examples in batches of similar lengths, shortest first, for prediction."""
    order = sorted(examples, key=lambda example: len(example.tokens))
    for at in range(0, len(order), batch_examples):
        yield list(order[at : at + batch_examples])


def steps_per_epoch(settings: Adaptation, num_examples: int) -> int:
    return -(-num_examples // settings.batch_examples)


def max_epochs(settings: Adaptation, num_examples: int) -> int:
    """Returns ``num_epochs``, or more if ``min_steps`` need more epochs; ``patience`` may end
    training sooner."""
    return max(
        settings.num_epochs, -(-settings.min_steps // steps_per_epoch(settings, num_examples))
    )


def warmup_epochs(settings: Adaptation, num_examples: int) -> float:
    per_epoch = steps_per_epoch(settings, num_examples)
    steps = round(settings.warmup_fraction * max_epochs(settings, num_examples) * per_epoch)
    return steps / per_epoch
