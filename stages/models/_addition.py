"""Small modules that methods add to a backbone."""

from torch import nn


class Addition(nn.Module):
    """A small module that a method puts into a backbone (an adapter, a low-rank update, a prefix).

    The backbone counts its floating-point operations in matrix products with its own.
    """

    flops_per_token: int
    flops_per_batch: int = 0  # besides, whatever the batch holds
