"""The batches of fine-tuning: labelled examples in epochs."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from stages.core.seeding import stream
from stages.text.batch import Batch

BUCKET_BATCHES = 8  # batches are cut from this many at a time, sorted by length


@runtime_checkable
class Encoded(Protocol):
    """An Example."""

    @property
    def tokens(self) -> np.ndarray: ...


E = TypeVar("E", bound=Encoded)


@runtime_checkable
class Collator(Protocol):
    """A Task."""

    def collate(self, examples: list[Any], *, rngs: list[Any]) -> Batch: ...


class FinetuningData:
    """Every example once an epoch, in an order drawn for the epoch; batches are of examples of
    about one length, so that little is padded."""

    def __init__(
        self, examples: Sequence[Encoded], task: Collator, *, batch_examples: int, seed: int
    ) -> None:
        self._examples, self._task, self._seed = examples, task, seed
        self._batch_examples = batch_examples
        self.steps_per_epoch = -(-len(examples) // batch_examples)

    def micro_batches(self, step: int) -> list[Batch]:
        epoch, place = divmod(step, self.steps_per_epoch)
        chosen = self._epoch_batches(epoch)[place]
        return [self._task.collate([self._examples[i] for i in chosen], rngs=[])]

    def _epoch_batches(self, epoch: int) -> list[np.ndarray]:
        rng = stream(self._seed, "examples", epoch)
        order = rng.permutation(len(self._examples))
        lengths = np.array([len(self._examples[i].tokens) for i in order])
        bucket = np.arange(len(order)) // (BUCKET_BATCHES * self._batch_examples)
        order = order[np.lexsort((lengths, bucket))]
        batches = [order[at : at + self._batch_examples] for at in self._starts(len(order))]
        return [batches[i] for i in rng.permutation(len(batches))]

    def _starts(self, number: int) -> range:
        return range(0, number, self._batch_examples)


def in_order_of_length(examples: Sequence[E], *, batch_examples: int) -> Iterator[list[E]]:
    """All examples, each once, in batches of about one length: for prediction."""
    order = sorted(examples, key=lambda example: len(example.tokens))
    for at in range(0, len(order), batch_examples):
        yield list(order[at : at + batch_examples])
