"""An entry of params.yaml that names a component, and what is said of it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from stages.components import check, component_class, unknown


def name_of(entry: Mapping[str, Any]) -> str:
    return str(entry.get("name", ""))


def settings_of(folder: str, entry: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The settings of a component that cannot be built as yet, defaults filled in."""
    cls = component_class(folder, name_of(entry), where=where)
    return check(cls, {k: v for k, v in entry.items() if k != "name"}, where=where)


def unlisted(name: str, listed: Iterable[str], where: str) -> Iterator[str]:
    if name not in listed:
        yield f"{where}: {unknown(name, listed)}"


def fault_of(attempt: Callable[[], object]) -> Iterator[str]:
    try:
        attempt()
    except ValueError as error:
        yield str(error)
