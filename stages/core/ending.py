"""Ends a process when the process that started it dies, and lets a training save itself first.

Imports only the standard library, because ``stages/__init__.py`` calls ``die_with_dvc`` before any
import that takes time.
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG = 1  # an option of Linux' prctl
# Loaded on import, since the fork of a process with threads must not load libraries.
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def die_with_parent(parent: int | None = None) -> None:
    """Makes the kernel kill this process when its parent dies (on Linux): else a stage would write
    at the same time as a stage of the next DVC. With the pid of the ``parent``, this process also
    ends if the parent is dead already."""
    if _prctl:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if parent not in (None, os.getppid()):
            os.kill(os.getpid(), signal.SIGKILL)


def die_with_dvc() -> None:
    """Makes the kernel kill a stage when the DVC that runs it dies (on Linux).

    A stage does not know the pid of its DVC, but both are in one process group. A parent in another
    group is the process that took over the children of a dead DVC (init): the stage then ends.
    """
    if _prctl and "DVC_STAGE" in os.environ:  # DVC sets it; a stage that is run by hand lacks it
        die_with_parent()
        with suppress(ProcessLookupError):  # the parent died just now, which kills this process
            if os.getpgid(os.getppid()) != os.getpgrp():
                os.kill(os.getpid(), signal.SIGKILL)


def end_by_signals(error: Callable[[int], BaseException]) -> None:
    """Makes each of ``SIGNALS`` raise ``error(number)``, so that this process cleans up before it
    ends. Signals that are ignored (by ``nohup``) stay ignored."""

    def end(number: int, frame: object) -> None:
        for other in SIGNALS:  # a second signal must not interrupt the clean-up
            signal.signal(other, signal.SIG_IGN)
        raise error(number)

    for number in _handlers():
        signal.signal(number, end)


@contextmanager
def held_signals() -> Iterator[list[int]]:
    """Delays the signals that end this process until the context ends, and yields the list of those
    that came, so that there is time to save what was computed; a second signal ends it at once.

    Does nothing outside the main thread, which alone can handle signals.
    """
    is_main = threading.current_thread() is threading.main_thread()
    came, handlers = list[int](), _handlers() if is_main else {}

    def restore(*came_now: Any) -> None:
        came.extend(came_now[:1])
        for number, handler in handlers.items():
            signal.signal(number, handler)

    for number in handlers:
        signal.signal(number, restore)
    try:
        yield came
    finally:
        restore()
        if came:
            os.kill(os.getpid(), came[0])


def _handlers() -> dict[int, Any]:
    """Returns the handlers of those ``SIGNALS`` that are not ignored (as by ``nohup``)."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    return {n: handler for n, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
