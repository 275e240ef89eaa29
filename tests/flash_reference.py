"""A CPU kernel for torch's attention within documents of different lengths, which torch supports
only on GPUs. It loops over documents in double precision. Importing this module registers it."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
import torch.nn.attention.varlen  # defines the operations
from torch import Tensor


def documents_of(
    starts: Tensor, longest: int, is_causal: bool, *of_tokens: Tensor
) -> Iterator[tuple[Tensor, ...]]:
    """Yields for each document a mask [n n] of the keys that its queries do not see, and the
    document's part [H n d] of each tensor [N H d] in double precision."""
    assert starts[0] == 0 and starts[-1] == len(of_tokens[0])
    for begin, end in pairwise(starts.tolist()):
        assert 0 <= end - begin <= longest
        hidden = torch.ones(end - begin, end - begin, dtype=torch.bool).triu(1) & is_causal
        yield hidden, *(x[begin:end].transpose(0, 1).double() for x in of_tokens)


def probabilities(q: Tensor, k: Tensor, hidden: Tensor) -> Tensor:
    return (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(hidden, -torch.inf).softmax(dim=-1)


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    is_causal: bool = False,
    *others: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    assert cu_seq_q.dtype == torch.int32 and torch.equal(cu_seq_q, cu_seq_k) and max_q == max_k
    mixed = [
        (probabilities(q, k, hidden) @ v).transpose(0, 1)
        for hidden, q, k, v in documents_of(cu_seq_q, max_q, is_causal, query, key, value)
    ]
    # The backward pass below has no use for the sums of the softmax and the state of dropout.
    unused = query.new_zeros(0, dtype=torch.float32), query.new_zeros(2, dtype=torch.uint64)
    return torch.cat(mixed).to(query), *unused


def backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    is_causal: bool,
    *others: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    parts = documents_of(cu_seq_q, max_q, is_causal, query, key, value, grad_out)
    gradients = list[tuple[Tensor, ...]]()
    for hidden, q, k, v, of_mixed in parts:
        p = probabilities(q, k, hidden)
        of_p = of_mixed @ v.mT
        of_scores = p * (of_p - (of_p * p).sum(dim=-1, keepdim=True)) / q.shape[-1] ** 0.5
        gradients.append((of_scores @ k, of_scores.mT @ q, p.mT @ of_mixed))
    dq, dk, dv = (torch.cat([x.transpose(0, 1) for x in of]) for of in zip(*gradients, strict=True))
    return dq.to(query), dk.to(query), dv.to(query)


torch.library.register_kernel("torch_attn::_varlen_attn", "cpu", forward)
torch.library.register_kernel("torch_attn::_varlen_attn_backward", "cpu", backward)
