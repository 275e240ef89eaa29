"""Batches: the widths of rows, the starts of documents, and the places of labels."""

import numpy as np
import pytest
import torch

from stages.models._heads import labelled
from stages.text.batch import (
    IGNORE_INDEX,
    document_starts,
    in_few_widths,
    label_places,
    pad,
)

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


def test_document_starts_are_those_of_all_rows_in_one_sequence() -> None:
    """The number of tokens is the last, repeated up to a power of two."""
    ids = [[1, 1, 1, 2, 3, 3, 0, 0], [1, 2, 2, 2, 2, 2, 2, 3], [0] * 8, [1] * 8]
    starts = document_starts(torch.tensor(ids))
    assert starts is not None and starts.dtype == torch.int32
    assert starts.tolist() == [0, 3, 4, 6, 8, 9, 15, 16, 24, *[32] * 7]
    full = document_starts(torch.tensor([[1, 1], [1, 2], [1, 1]]))
    assert full is not None and full.tolist() == [0, 2, 3, 4, *[6] * 4]
    in_two_places = [[0, 1, 1, 0], [1, 1, 1, 1]]
    assert document_starts(torch.tensor(in_two_places)) is None


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
