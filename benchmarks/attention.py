"""Compares torch's kernels of attention in bfloat16 on a CPU with the matrix products written out
(stages/models/_attention.py), forward and backward, interleaved. Prints a table.

    python -m benchmarks.attention

Milliseconds on a core of an AMD EPYC with bfloat16, torch 2.13.0, medians of 9:

    rows, heads, tokens, width   kernel, bfloat16   kernel, float32   written out
    (8, 4, 32, 32)                           3.99              1.39          1.50
    (64, 4, 40, 32)                         33.80              9.36          5.50
    (16, 4, 128, 32)                        22.82             10.34          6.50
    (32, 4, 128, 64)                        58.08             36.76         20.26
    (16, 12, 128, 64)                       85.85             50.61         29.68
    (8, 4, 256, 64)                         31.88             28.48         16.51
    (8, 4, 512, 64)                        108.59            115.54         62.19
    (4, 4, 1024, 64)                       194.62            234.07        112.77

Written out, attention keeps two bytes for each pair of tokens and head, so rows of more than 512
tokens have the kernel.
"""

import math
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stages.models import _attention

ROUNDS = 9
MODULE = nn.Module()  # transformers hands the layer over
SHAPES = (
    (8, 4, 32, 32),
    (64, 4, 40, 32),
    (16, 4, 128, 32),
    (32, 4, 128, 64),
    (16, 12, 128, 64),
    (8, 4, 256, 64),
    (8, 4, 512, 64),
    (4, 4, 1024, 64),
)


def in_bfloat16(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def in_float32(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    inputs = (each.float() for each in (q, k, v))
    return F.scaled_dot_product_attention(*inputs, attn_mask=mask).to(q)


def written_out(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    mixed, _ = _attention.attend(MODULE, q, k, v, _attention.additive(mask, q.dtype))
    return mixed.transpose(1, 2)


WAYS: tuple[Callable[..., Tensor], ...] = (in_bfloat16, in_float32, written_out)


def milliseconds(shape: tuple[int, int, int, int]) -> dict[str, float]:
    """Returns the median time of a forward and a backward pass of each way, from the states of
    tokens to the mixed states, both in one tensor."""
    rows, heads, length, width = shape
    states = torch.randn(rows, length, 3 * heads * width).bfloat16().requires_grad_()
    documents = torch.ones(rows, length)
    documents[:, length - length // 4 :] = 0
    mask = (documents[:, :, None] == documents[:, None, :])[:, None]
    taken: dict[str, list[float]] = {way.__name__: [] for way in WAYS}
    for number in range(ROUNDS + 1):
        for way in WAYS:
            began = time.perf_counter()
            parts = states.chunk(3, dim=-1)
            inputs = (part.unflatten(-1, (heads, width)).transpose(1, 2) for part in parts)
            mixed = way(*inputs, mask).transpose(1, 2).flatten(2)
            torch.autograd.grad(mixed, states, mixed.detach())
            if number:  # the first is a warm-up
                taken[way.__name__].append(1000 * (time.perf_counter() - began))
    return {name: statistics.median(each) for name, each in taken.items()}


def main() -> None:
    torch.set_num_threads(1)
    _attention.WRITTEN_OUT = math.inf
    processor = torch.backends.cpu.get_cpu_capability()
    print(f"torch {torch.__version__}, {processor}, one thread, ms, medians of {ROUNDS}\n")
    print("| rows, heads, tokens, width | kernel, bfloat16 | kernel, float32 | written out |")
    print("|---|---|---|---|")
    for shape in SHAPES:
        medians = milliseconds(shape)
        print(f"| {shape} | " + " | ".join(f"{medians[way.__name__]:.2f}" for way in WAYS) + " |")


if __name__ == "__main__":
    main()
