"""Lock files that name the process that holds them."""

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

WAIT_S = 30.0  # a killed process may take some seconds to end


class LockHeld(ValueError):
    """The error that another process has held a lock for too long."""


def write_holder(file: Path) -> None:
    """Writes into a lock file that this process holds it."""
    file.write_text(f"process {os.getpid()} on {platform.node()}", encoding="utf-8")


def refusal(file: Path) -> LockHeld:
    """Returns the error that names the process that holds the lock, and what to do."""
    holder = file.read_text(encoding="utf-8") or "another process"
    pid = next(filter(str.isdigit, holder.split()), "PID")
    return LockHeld(
        f"{holder} holds {file}; wait until it ends, or end it (`kill {pid}`), and run this again"
    )


@contextmanager
def hold(file: Path) -> Iterator[None]:
    """Holds a lock file.

    Raises LockHeld if another process holds it for longer than ``WAIT_S``.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(file)
    try:
        try:
            lock.acquire(timeout=min(1.0, WAIT_S))
        except Timeout:
            print(f"waiting at most {WAIT_S:.0f} s for {file}", file=sys.stderr)
            lock.acquire(timeout=WAIT_S)
    except Timeout:
        raise refusal(file) from None
    try:
        write_holder(file)
        yield
    finally:
        lock.release()
