"""Streams: equal for equal keys, independent for different keys."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stages.core.seeding import derive, stream, torch_stream

KEYS = st.tuples(st.integers(0, 2**31), st.text(max_size=5), st.integers(0, 1000))


@pytest.mark.slow
@given(KEYS, KEYS)
def test_stream_depends_on_its_key_alone(a, b) -> None:
    assert stream(*a).random() == stream(*a).random()
    assert (stream(*a).random() == stream(*b).random()) == (a == b)


def test_derive_concatenates_no_keys() -> None:
    assert derive(1, "ab", "c") != derive(1, "a", "bc")
    assert derive(1, "a", 23) != derive(12, "a", 3)


def test_stream_is_the_same_in_another_process() -> None:
    code = "from stages.core.seeding import stream; print(stream(7, 'x', 3).integers(2**40))"
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert int(other) == stream(7, "x", 3).integers(2**40)


def test_torch_stream_depends_on_its_key_alone() -> None:
    draws = [torch.rand(2, generator=torch_stream(1, "w")) for _ in range(2)]
    assert torch.equal(*draws)
