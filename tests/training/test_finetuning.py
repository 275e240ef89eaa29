"""Labelled examples in epochs."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.tasks._task import Example
from stages.tasks.classification import Classification
from stages.text.batch import Batch, pad
from stages.training.finetuning import FinetuningData
from tests.small import small_tokenizer


class Ids(Classification):
    """A task whose batches are the ids of the examples."""

    def __init__(self) -> None:
        super().__init__(["a", "b"], small_tokenizer(), 64)

    def collate(self, examples, *, rngs) -> Batch:
        ids = pad([np.array([int(e.id)]) for e in examples], 0)
        return Batch(input_ids=ids, document_ids=ids, num_targets={})


def examples_of(lengths: list[int]) -> list[Example]:
    return [Example(str(i), np.zeros(n), np.zeros(1)) for i, n in enumerate(lengths)]


@given(
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=60),
    batch_examples=st.integers(1, 9),
    seed=st.integers(0, 5),
)
@settings(max_examples=60, deadline=None)
def test_epoch_has_each_example_once(lengths, batch_examples, seed) -> None:
    data = FinetuningData(examples_of(lengths), Ids(), batch_examples=batch_examples, seed=seed)
    orders = []
    for epoch in range(2):
        steps = range(epoch * data.steps_per_epoch, (epoch + 1) * data.steps_per_epoch)
        batches = [data.micro_batches(step)[0].input_ids.flatten().tolist() for step in steps]
        orders.append([i for batch in batches for i in batch])
        assert all(len(batch) <= batch_examples for batch in batches)
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(len(lengths)))


def test_batches_have_about_one_length() -> None:
    """Padded batches are at least a fifth smaller than in random order."""
    lengths = np.random.default_rng(0).integers(5, 50, 256).tolist()

    def padded(batches: list[list[int]]) -> int:
        return sum(len(batch) * max(lengths[i] for i in batch) for batch in batches)

    data = FinetuningData(examples_of(lengths), Ids(), batch_examples=8, seed=1)
    bucketed = [data.micro_batches(s)[0].input_ids.flatten().tolist() for s in range(32)]
    order = np.random.default_rng(1).permutation(256).reshape(32, 8).tolist()
    assert padded(bucketed) < 0.8 * padded(order)
