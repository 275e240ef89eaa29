"""The standard output and error of a process where they cannot be written.

A process may be started without them (``>&-``): Python then has None for the stream, and the next
file that is opened gets the stream's descriptor, so that what a library prints would be written
into a result. Or the disk is full, or the reader of a pipe has ended. Imports the standard library
alone, because ``stages/__init__.py`` calls it before anything is opened.
"""

import os
import sys


def open_streams() -> None:
    """Opens standard output and standard error as the null device where they are closed."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            stream = os.fdopen(number, "w", encoding="utf-8", closefd=False)
            setattr(sys, name, stream)


def drop_unwritten() -> None:
    """Drops what standard output still holds if it cannot be written. Python would write it at its
    end, fail, and exit with 120."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
