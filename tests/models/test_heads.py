"""Pooling and gathering."""

import torch

from stages.models._heads import LinearHead, gather, initialise_head, pool

STATES = torch.tensor([[[1.0, 1.0], [3.0, 5.0], [9.0, 9.0]], [[2.0, 0.0], [4.0, 2.0], [6.0, 1.0]]])
DOCUMENTS = torch.tensor([[1, 1, 0], [1, 1, 1]])  # the first row has padding at its end


def test_pooling_leaves_padding_out() -> None:
    assert pool(STATES, DOCUMENTS, "mean").tolist() == [[2.0, 3.0], [4.0, 1.0]]
    assert pool(STATES, DOCUMENTS, "last").tolist() == [[3.0, 5.0], [6.0, 1.0]]
    assert pool(STATES, DOCUMENTS, "first").tolist() == [[1.0, 1.0], [2.0, 0.0]]


def test_gather_takes_the_states_at_positions() -> None:
    picked = gather(STATES, torch.tensor([[2, 0], [1, 1]]))
    assert picked.tolist() == [[[9.0, 9.0], [1.0, 1.0]], [[4.0, 2.0], [4.0, 2.0]]]


def test_a_head_is_a_function_of_its_seed() -> None:
    heads = [LinearHead(4, 3, dropout=0.1) for _ in range(2)]
    for head in heads:
        initialise_head(head, generator=torch.Generator().manual_seed(5))
    assert torch.equal(heads[0].linear.weight, heads[1].linear.weight)
    assert heads[0].linear.bias.abs().sum() == 0
