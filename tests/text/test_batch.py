"""Batches: the widths of rows, and the places of labels."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from stages.models._heads import ModelWithHead, labelled
from stages.text.batch import IGNORE_INDEX, Batch, in_few_widths, label_places, pad
from tests.small import small_model, small_tokenizer
from tests.test_devices import ROWS, fitting, task_of
from tests.training.trained_by_ranks import LENGTH, built, cases

LONGEST = 100


@pytest.mark.parametrize(
    ("length", "width"), [(1, 64), (64, 64), (65, LONGEST), (LONGEST, LONGEST), (200, 200)]
)
def test_pad_in_few_widths_makes_multiples_of_64_up_to_the_longest(length: int, width: int) -> None:
    rows = [np.arange(length), np.arange(1)]
    with in_few_widths(LONGEST):
        assert pad(rows, -5).shape == (2, width)
        assert pad(rows, -5, length=length).shape == (2, length)
        assert (pad(rows, -5)[0, length:] == -5).all()
    assert pad(rows, -5).shape == (2, length)


def terms(model: ModelWithHead, criterion: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    """Returns the terms of a loss and the gradients of all weights."""
    losses = torch.stack([total for _, total in model(criterion.loss, batch).values()])
    model.zero_grad()
    losses.sum().backward()
    gradients = [weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]
    return losses, torch.cat(gradients)


def assert_equal_terms(model: ModelWithHead, criterion: Any, exact: Batch, wide: Batch) -> None:
    assert wide.num_targets == exact.num_targets
    results = [terms(model, criterion, batch) for batch in (exact, wide)]
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "architecture"), cases())
def test_few_widths_change_no_loss_of_an_objective(name: str, architecture: str) -> None:
    objective, model, data = built(name, architecture, dropout=0.0)
    [exact, *_] = data.micro_batches(0)
    with in_few_widths(2 * LENGTH):
        [wide, *_] = data.micro_batches(0)
    assert_equal_terms(model, objective, exact, wide)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "architecture"), fitting())
def test_few_widths_change_no_loss_of_a_task(name: str, architecture: str) -> None:
    backbone = small_model(architecture)
    task = task_of(name, backbone, small_tokenizer())
    model = ModelWithHead(backbone, task.head(backbone)).eval()
    for weight in model.head.parameters():
        torch.nn.init.constant_(weight, 0.1)
    examples = task.encode(ROWS[name])
    exact = task.collate(examples, rngs=[])
    with in_few_widths(task.max_tokens):
        wide = task.collate(examples, rngs=[])
    assert wide.input_ids.shape[1] == 64 > exact.input_ids.shape[1]
    assert_equal_terms(model, task, exact, wide)


def test_labelled_gives_states_where_labels_count_and_ignores_absent_places() -> None:
    labels = torch.tensor([[3, IGNORE_INDEX, 4], [IGNORE_INDEX, 5, IGNORE_INDEX]])
    states = torch.arange(12.0).view(2, 3, 2)
    places = label_places(labels)
    assert places.tolist() == [[0, 0, 1], [0, 2, 1]]
    chosen, right = labelled(states, labels, places)
    assert torch.equal(chosen, states[labels != IGNORE_INDEX]) and right.tolist() == [3, 4, 5]
    padded = torch.nn.functional.pad(places, (0, 2), value=-1)
    chosen, right = labelled(states, labels, padded)
    assert right.tolist() == [3, 4, 5, IGNORE_INDEX, IGNORE_INDEX] and len(chosen) == 5
