"""Pooling, gathering, and the scores of spans."""

import pytest
import torch
import torch.nn.functional as F

from stages.models._backbone import Pooling
from stages.models._heads import (
    LinearHead,
    SpanHead,
    StartEndHead,
    following,
    gather,
    initialise_head,
    pool,
)

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


def test_following_are_a_token_and_those_behind_it() -> None:
    assert following(torch.tensor([[1, 2, 3]]), 2).tolist() == [[[1, 2], [2, 3], [3, 0]]]
    assert following(STATES, 2).shape == (2, 3, 2, 2)
    assert following(STATES, 2)[0, 1].tolist() == [[3.0, 5.0], [9.0, 9.0]]


CANDIDATES = torch.tensor([[False, True, False, False], [False, True, True, True]])
ROWS = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])


def span_head(name: str, no_answer: Pooling = "first") -> StartEndHead | SpanHead:
    """Returns a head for spans of up to 2 tokens."""
    if name == "start_end":
        head = StartEndHead(3, 2, dropout=0.0, no_answer=no_answer)
    else:
        head = SpanHead(3, 2, d_span=5, dropout=0.0, no_answer=no_answer)
    initialise_head(head, generator=torch.Generator().manual_seed(5), std=1.0)
    return head


@pytest.mark.parametrize("name", ["start_end", "span"])
@pytest.mark.parametrize(("no_answer", "places"), [("first", [0, 0]), ("last", [2, 3])])
def test_scores_of_spans_are_those_of_the_equation(name, no_answer, places) -> None:
    head = span_head(name, no_answer)
    states = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(1))

    def expected(row: int, first: int, last: int) -> torch.Tensor:
        span = states[row, first : last + 1]
        if isinstance(head, StartEndHead):
            return head.linear(span[0])[0] + head.linear(span[-1])[1]
        hidden = head.start(span[0]) + head.end(span[-1]) + head.mean(span.mean(dim=0))
        return head.score(F.relu(hidden))[0]

    none, spans = head.scores(head(states, ROWS, CANDIDATES), 4)
    assert spans.shape == (2, 4, 2)
    for row, place in enumerate(places):
        torch.testing.assert_close(none[row], expected(row, place, place))
        for first in range(4):
            for last in (first, first + 1):
                score = spans[row, first, last - first]
                if last < 4 and CANDIDATES[row, first] and CANDIDATES[row, last]:
                    torch.testing.assert_close(score, expected(row, first, last))
                else:
                    assert score == -torch.inf


@pytest.mark.parametrize("name", ["start_end", "span"])
@torch.no_grad()
def test_the_right_class_is_that_of_the_right_span(name) -> None:
    """Raising the logits of the right classes makes the right answer, a span or none, the best. An
    unknown answer stays unknown."""
    head = span_head(name)
    states = torch.zeros(2, 4, 3)
    for first, last in ((1, 1), (1, 2), (2, 3), (3, 3)):
        logits = head(states, ROWS, CANDIDATES)
        ends = torch.tensor([[0, 0], [1 + first, 1 + last]])
        for term, classes in head.classes(ends, 4).items():
            logits[term][torch.arange(2), classes] += 1.0
        none, spans = head.scores(logits, 4)
        assert none[0] > spans[0].max()
        assert divmod(int(spans[1].argmax()), 2) == (first, last - first)
        assert spans[1].max() > none[1]
    unknown = torch.full((1, 2), -100)
    assert all(classes.tolist() == [-100] for classes in head.classes(unknown, 4).values())
