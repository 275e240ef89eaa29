"""Streams: equal for equal keys, independent for different keys."""

from typing import Any

import torch

from stages.core.seeding import derive, stream, torch_stream


def test_stream_depends_on_its_key_alone() -> None:
    """Also in another process: the number is from an earlier one."""
    keys: list[Any] = [
        (1, "ab", "c"),
        (1, "a", "bc"),
        (1, "a", 23),
        (12, "a", 3),
        (1, "a"),
        (2, "a"),
    ]
    draws = [stream(*key).integers(2**40) for key in keys]
    assert draws == [stream(*key).integers(2**40) for key in keys]
    assert len({*draws}) == len(keys) == len({derive(*key) for key in keys})
    assert stream(7, "x", 3).integers(2**40) == 956909663061


def test_torch_stream_depends_on_its_key_alone() -> None:
    draws = [torch.rand(2, generator=torch_stream(1, "w")) for _ in range(2)]
    assert torch.equal(*draws)
