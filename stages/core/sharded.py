"""Tensors of which each process may hold a part."""

from typing import Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class Sharded(Protocol):
    """The methods of a DTensor that are used here. Importing DTensor itself takes seconds."""

    def full_tensor(self) -> Tensor: ...

    def to_local(self) -> Tensor: ...


def whole(tensor: Tensor) -> Tensor:
    """Returns all of a tensor that may be sharded; every rank has to call it."""
    return tensor.full_tensor() if isinstance(tensor, Sharded) else tensor


def local(tensor: Tensor) -> Tensor:
    """Returns the part of a tensor that this rank holds, without a copy."""
    return tensor.to_local() if isinstance(tensor, Sharded) else tensor
