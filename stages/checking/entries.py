"""Entries of params.yaml that name a component, and faults of entries."""

from collections.abc import Callable, Iterable, Iterator

from stages.core.components import Settings, unknown


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
