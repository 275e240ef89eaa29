"""The standard output and error of a process that was started without them (``>&-``).

Python then has None for the stream, and the next file that is opened gets the stream's descriptor,
so that what a library prints would be written into a result. Imports the standard library alone,
because ``stages/__init__.py`` calls it before anything is opened.
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
