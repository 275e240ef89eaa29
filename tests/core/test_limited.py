"""Work in a process of its own gives its result or a ValueError, and leaves no process."""

import os
import sys
import time
from collections.abc import Callable

import psutil
import pytest

from stages.core.limited import limited

pytestmark = [
    pytest.mark.slow,  # starts processes
    pytest.mark.skipif(sys.platform != "linux", reason="limits are those of Linux"),
]


def raises(error: Exception) -> Callable[[], int]:
    def work() -> int:
        raise error

    return work


def run(work: Callable[[], int], seconds: float = 20.0) -> int:
    return limited(work, seconds=seconds, num_bytes=2**28, what="path: reading it")


def test_limited_returns_what_the_work_returns_and_changes_nothing_here() -> None:
    seen: list[int] = []
    assert run(lambda: seen.append(1) or os.getpid()) != os.getpid()
    assert seen == []


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (raises(ValueError("path: is wrong")), "^path: is wrong$"),
        (raises(KeyError("a")), "^path: reading it failed: 'a'$"),
        (lambda: len(bytes(2**30)), "^path: reading it took more than 0 GB of memory$"),
        (lambda: os._exit(3), "^path: reading it ended its process, perhaps for lack of memory$"),
    ],
)
def test_limited_turns_every_end_into_a_message(work: Callable[[], int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(work)


def test_limited_ends_work_that_takes_too_long() -> None:
    begin, others = time.monotonic(), psutil.Process().children()
    with pytest.raises(ValueError, match="^path: reading it took more than 0 s"):
        run(lambda: time.sleep(60) or 1, seconds=0.2)
    assert time.monotonic() - begin < 10
    assert {*psutil.Process().children()} <= {*others}
