"""Handles a standard output and a standard error that cannot be written.

A process may be started without them (``>&-``): Python then has None for the stream, and the next
file that is opened gets the stream's descriptor, so that libraries would print into that file.
Writing also fails if the disk is full or the reader of a pipe has ended. Imports only the standard
library, because ``stages/__init__.py`` calls it before anything is opened.
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
    """Drops the buffer of standard output if it cannot be written. Otherwise Python would try to
    write it when the process ends, fail, and exit with status 120."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
