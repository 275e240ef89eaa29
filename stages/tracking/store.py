"""The MLflow store: its address and client, a lock, and errors as warnings."""

import logging
import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from stages.core import paths
from stages.core.locks import hold

if TYPE_CHECKING:
    import mlflow

DATABASE, ARTIFACTS = Path("mlflow.db"), Path("mlruns")  # unless MLFLOW_TRACKING_URI is set
LOCK = paths.SCRATCH / "mlflow.lock"
SQLITE = "sqlite:///"
# A password may have any character; a number and a slash after the colon are a port and a path.
WITH_USER = re.compile(r"(?<=//)(?:[^\s/:@]*:(?!\d+/)\S*|[^\s/@]*)@")
WITH_QUERY = re.compile(r"(\w://[^\s?]*)\?\S*")
MOST_SHOWN = 400  # characters of a warning
SETTINGS = {
    # Nothing may wait long for a server that does not answer.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # else two lines for each run on a server
}


def address() -> str:
    """Returns MLFLOW_TRACKING_URI, or the address of an SQLite database in the project."""
    return os.environ.get("MLFLOW_TRACKING_URI") or _default_address()


def without_user(text: str) -> str:
    """Removes user names, passwords and queries, which may contain both, from the addresses in a
    text. Every text that is printed should pass through here."""
    if "//" not in address():
        text = text.replace(address(), address().rpartition("@")[2])
    return WITH_QUERY.sub(r"\1", WITH_USER.sub("", text))


def _default_address() -> str:
    return f"{SQLITE}{DATABASE.resolve()}"


def client() -> "mlflow.MlflowClient":
    """Returns a client of the store. Call it within ``exclusive``, because it creates a missing
    database."""
    for key, value in SETTINGS.items():
        os.environ.setdefault(key, value)
    if address().startswith(SQLITE):
        _prepare(Path(address().removeprefix(SQLITE)))

    from mlflow import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return MlflowClient(address())


def _prepare(database: Path) -> None:
    """Switches the file to SQLite's write-ahead log, so that readers and a writer do not wait for
    each other.

    Raises sqlite3.Error for a file that is no database or cannot be written: MLflow would try for
    minutes to connect to it.
    """
    database.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")


def artifacts() -> str | None:
    """Returns the address of the experiment's files, or None if MLFLOW_TRACKING_URI decides it."""
    return ARTIFACTS.resolve().as_uri() if address() == _default_address() else None


def exclusive() -> AbstractContextManager[None]:
    """Returns a lock that one process holds at a time. Without it, two processes that create the
    database would both fail, and two processes could add the same run. Raises LockHeld if another
    process holds the lock for too long."""
    return hold(LOCK)


@contextmanager
def errors_as_warnings(*, other_than: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Prints an error as one line of warning, unless it is of the type ``other_than``."""
    try:
        yield
    except other_than:
        raise
    except Exception as error:
        warn(" ".join(str(error).split()) or type(error).__name__)


def warn(message: str) -> None:
    print(without_user(f"warning: MLflow ({address()}): {message}")[:MOST_SHOWN], file=sys.stderr)
