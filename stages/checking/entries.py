"""Helpers of the rules: names of components, and errors as faults."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from stages.core.components import Settings, unknown

MOST_SHOWN = 300  # characters of a file's name in a message


def name_of(entry: Settings) -> str:
    return str(entry.get("name", ""))


def unlisted(name: str, listed: Iterable[str], where: str) -> Iterator[str]:
    if name not in listed:
        yield f"{where}: {unknown(name, listed)}"


def fault_of(attempt: Callable[[], object]) -> Iterator[str]:
    try:
        attempt()
    except ValueError as error:
        yield str(error)


@contextmanager
def file_errors(where: str) -> Iterator[None]:
    """Turns errors of the file system (a file that may not be read, too long a name) into
    ValueErrors that begin with ``where``, a path in params.yaml."""
    try:
        yield
    except OSError as error:
        named = "" if error.filename is None else f"{str(error.filename)[:MOST_SHOWN]}: "
        raise ValueError(f"{where}: {named}{error.strerror or error}") from None
