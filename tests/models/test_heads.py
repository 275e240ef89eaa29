"""Pooling, gathering, and the scores of spans."""

import pytest
import torch

from stages.models._heads import LinearHead, StartEndHead, gather, initialise_head, pool
from stages.tasks.span_qa import span_scores

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


CANDIDATES = torch.tensor([[False, True, False, False], [False, True, True, True]])
ROWS = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])


@pytest.mark.parametrize(("no_answer", "places"), [("first", [0, 0]), ("last", [2, 3])])
def test_start_end_head_scores_spans_by_their_two_ends(no_answer, places) -> None:
    head = StartEndHead(3, dropout=0.0, no_answer=no_answer)
    initialise_head(head, generator=torch.Generator().manual_seed(5), std=1.0)
    states = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(1))
    first_logits, last_logits = head(states, ROWS, CANDIDATES)
    spans = span_scores(first_logits, last_logits, 2)
    assert spans.shape == (2, 4, 2)
    ends = head.linear(states)
    for row, place in enumerate(places):
        none = ends[row, place].sum()
        for first in range(4):
            for last in (first, first + 1):
                score = spans[row, first, last - first]
                if last < 4 and CANDIDATES[row, first] and CANDIDATES[row, last]:
                    expected = ends[row, first, 0] + ends[row, last, 1] - none
                    torch.testing.assert_close(score, expected)
                else:
                    assert score == -torch.inf
