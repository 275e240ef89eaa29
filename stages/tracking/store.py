"""The MLflow store: its address and client, one process at a time, errors as warnings."""

import fcntl
import logging
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from stages.core import paths

if TYPE_CHECKING:
    import mlflow

DATABASE, ARTIFACTS = Path("mlflow.db"), Path("mlruns")  # unless MLFLOW_TRACKING_URI is set
LOCK = paths.SCRATCH / "mlflow.lock"
TIMEOUT_S = 30.0
# Columns of MLflow's tables that hold the address of a folder or of a file in it.
ADDRESSES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)


def address() -> str:
    """MLFLOW_TRACKING_URI, or an SQLite database in the project."""
    return os.environ.get("MLFLOW_TRACKING_URI") or default_address()


def default_address() -> str:
    return f"sqlite:///{DATABASE.resolve()}"


def client() -> "mlflow.MlflowClient":
    # Without a network, nothing may wait long for a server that does not answer.
    quick = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "10", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    quiet["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # two lines for each run of a server
    for key, value in {**quiet, **quick}.items():
        os.environ.setdefault(key, value)
    if address().startswith("sqlite:///"):
        path = Path(address().removeprefix("sqlite:///"))
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=TIMEOUT_S)) as database:
            # If this fails, MLflow would retry for minutes. With WAL, readers do not wait.
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("BEGIN IMMEDIATE")

    from mlflow import MlflowClient
    from sqlalchemy import event
    from sqlalchemy.pool import Pool

    if not event.contains(Pool, "connect", _do_not_wait_for_disk):
        event.listen(Pool, "connect", _do_not_wait_for_disk)
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return MlflowClient(address())


def _do_not_wait_for_disk(connection: object, _: object) -> None:
    """A power cut may lose the last runs, never the database; the next ``reconcile`` adds them.
    Waiting for the disk after each of several calls per run would take longer than all else."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = NORMAL")


def artifacts() -> str | None:
    """Where an experiment has its files; None where the server of another address decides."""
    return ARTIFACTS.resolve().as_uri() if address() == default_address() else None


def local(location: str) -> Path | None:
    """The folder of an address of artifacts; None if a server has them."""
    from mlflow.utils.file_utils import local_file_uri_to_path

    return Path(local_file_uri_to_path(location)) if location.startswith("file:") else None


def relocate(old: str, new: str) -> None:
    """Make the project's database name ``new`` wherever it names the folder ``old``.

    MLflow keeps absolute addresses and has no call to change them, so that the runs of a copied or
    moved project would show files of the original, or none.
    """
    with closing(sqlite3.connect(DATABASE, timeout=TIMEOUT_S)) as database, database:
        for table, column in ADDRESSES:
            database.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) "
                f"WHERE {column} = ? OR substr({column}, 1, ?) = ?",
                (new, len(old) + 1, old, len(old) + 1, f"{old}/"),
            )


@contextmanager
def exclusive() -> Iterator[None]:
    """One process at a time: two that create the database both fail, and both would add a run."""
    LOCK.parent.mkdir(exist_ok=True)
    with LOCK.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def errors_as_warnings() -> Iterator[None]:
    """Print an error as one line of warning."""
    try:
        yield
    except Exception as error:
        warn(" ".join(str(error).split()) or type(error).__name__)


def warn(message: str) -> None:
    print(f"warning: MLflow ({address()}): {message[:300]}", file=sys.stderr)
