"""Named, counter-based random streams: every draw is a pure function of its key.

``stream(seed, "mask", step, row)`` gives the same numbers on every machine, in every process and in
any order of calls, so no generator has a state to save or to share. Streams with different keys are
independent.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive(seed: int, *key: str | int) -> int:
    """Returns a 63-bit seed that is a hash of ``seed`` and ``key``."""
    digest = hashlib.blake2b(repr((seed, *key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def stream(seed: int, *key: str | int) -> np.random.Generator:
    """Returns a Philox generator keyed by (seed, name, counters ...)."""
    return np.random.Generator(np.random.Philox(key=derive(seed, *key)))


def torch_stream(seed: int, *key: str | int) -> "torch.Generator":
    """Returns a torch generator keyed as in ``stream``, for a module's initial weights, say."""
    import torch  # here, so that stages that only read text start without it

    return torch.Generator().manual_seed(derive(seed, *key))


@contextmanager
def seeded(generator: "torch.Generator") -> Iterator[None]:
    """Within this context torch's own generator, which transformers draws weights from, continues
    ``generator``."""
    import torch

    with torch.random.fork_rng(devices=()):
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        yield
