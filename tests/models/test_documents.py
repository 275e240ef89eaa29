"""Moving the documents of packed rows to rows of their own, and back."""

from itertools import combinations

import numpy as np
import torch

from stages.models._documents import (
    CALL_TOKENS,
    documents_of,
    groups_of_like_length,
    pairs_of,
    together,
)

IDS = torch.tensor([[1, 1, 1, 2, 3, 3, 0, 0], [1, 2, 2, 2, 2, 2, 2, 3], [0] * 8])


def padded_tokens(groups: list[np.ndarray], lengths: np.ndarray) -> int:
    """The cost of groups: all their tokens with padding, and CALL_TOKENS for each group."""
    return sum(len(group) * int(lengths[group].max(axis=0).sum()) + CALL_TOKENS for group in groups)


def test_documents_of_gives_each_token_its_place_and_together_puts_it_back() -> None:
    values = torch.arange(1.0, 1 + IDS.numel()).reshape(*IDS.shape, 1)
    groups = documents_of(IDS)
    apart = [group.apart(values) for group in groups]
    documents = {
        tuple(row[: int(real.sum())].flatten().tolist())
        for group, some in zip(groups, apart, strict=True)
        for row, real in zip(some, group.mask, strict=True)
    }
    assert documents == {(1, 2, 3), (4,), (5, 6), (9,), (10, 11, 12, 13, 14, 15), (16,)}
    torch.testing.assert_close(together(groups, apart, IDS)[..., 0], values[..., 0] * (IDS > 0))


def test_pairs_of_leaves_out_documents_without_a_target() -> None:
    targets = torch.tensor([[1, 1, 3], [2, 2, 2], [0, 0, 0]])
    read, written = zip(*pairs_of(IDS, targets), strict=True)
    lengths = [
        (int(one.sum()), int(other.sum()))
        for source, target in zip(read, written, strict=True)
        for one, other in zip(source.mask, target.mask, strict=True)
    ]
    assert sorted(lengths) == [(2, 1), (3, 2), (6, 3)]


def test_pairs_of_batches_without_targets_is_one_empty_group() -> None:
    [(read, written)] = pairs_of(IDS, torch.zeros(3, 2, dtype=torch.long))
    assert read.number == written.number == 0


def test_groups_of_like_length_cost_least_of_all_cuts_between_lengths() -> None:
    rng = np.random.default_rng(0)
    for num_sides in (1, 2):
        lengths = rng.integers(1, 400, (9, num_sides))
        order = np.argsort(lengths[:, 0], kind="stable")
        costs = [
            padded_tokens(np.split(order, cuts), lengths)
            for number in range(9)
            for cuts in combinations(range(1, 9), number)
        ]
        groups = groups_of_like_length(lengths)
        assert sorted(np.concatenate(groups).tolist()) == [*range(9)]
        assert padded_tokens(groups, lengths) == min(costs) < costs[0]


def test_groups_of_like_length_pad_packed_short_documents_little() -> None:
    """One group would need over 6 times the tokens, since a long document widens all rows."""
    lengths = np.random.default_rng(0).lognormal(np.log(50), 1.0, (250, 1)).clip(3, 512).astype(int)
    total = int(lengths.sum())
    assert padded_tokens([np.arange(250)], lengths) > 6 * total
    assert padded_tokens(groups_of_like_length(lengths), lengths) < 1.3 * total
