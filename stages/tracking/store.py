"""The MLflow store: its address, its client, a lock, and the guard that keeps its errors away from
the study."""

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
from stages.core.process import hold

if TYPE_CHECKING:
    import mlflow

DATABASE, ARTIFACTS = Path("mlflow.db"), Path("mlruns")  # unless MLFLOW_TRACKING_URI is set
LOCK = paths.SCRATCH / "mlflow.lock"
SQLITE = "sqlite:///"
MAX_SHOWN = 400  # characters of a warning
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
    return os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{DATABASE.resolve()}"


def without_password(text: str) -> str:
    """Removes the user and the password from the addresses in a text that is printed."""
    return re.sub(r"(?<=//)[^\s/@]*@", "", text)


def artifacts() -> str | None:
    """Returns the address of the experiment's files, or None if MLFLOW_TRACKING_URI decides it."""
    is_own = address() == f"{SQLITE}{DATABASE.resolve()}"
    return ARTIFACTS.resolve().as_uri() if is_own else None


def client() -> "mlflow.MlflowClient":
    """Returns a client of the store. Call it within ``exclusive``, since it creates a missing
    database.

    Raises sqlite3.Error for a file that is no database: MLflow would try for minutes to open it.
    """
    for key, value in SETTINGS.items():
        os.environ.setdefault(key, value)
    if address().startswith(SQLITE):
        database = Path(address().removeprefix(SQLITE))
        database.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(database)) as connection:
            # With a write-ahead log, `make ui` and a training do not wait for each other.
            connection.execute("PRAGMA journal_mode = WAL")

    from mlflow import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return MlflowClient(address())


def exclusive() -> AbstractContextManager[None]:
    """Returns a lock that one process holds at a time: two processes that create the database would
    both fail, and two could add the same run. Raises LockHeld after waiting for too long."""
    return hold(LOCK)


@contextmanager
def errors_as_warnings() -> Iterator[None]:
    """Prints any error as one line of warning: no training fails because MLflow does."""
    try:
        yield
    except Exception as error:
        warn(" ".join(str(error).split()) or type(error).__name__)


def warn(message: str) -> None:
    print(
        without_password(f"warning: MLflow ({address()}): {message}")[:MAX_SHOWN], file=sys.stderr
    )
