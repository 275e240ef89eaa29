"""The folder for temporary files, without which torch cannot be imported.

Imports the standard library alone, because ``stages/__init__.py`` calls it before anything else.
"""

import sys
import tempfile


def need_temporary_folder() -> None:
    """Ends the process with a message and exit status 2 if there is no folder for temporary files,
    as on a full disk."""
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        print(
            f"error: TMPDIR: {error.strerror}; free some space, or set TMPDIR to a folder that can "
            "be written",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
