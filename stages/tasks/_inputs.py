"""The inputs of new rows: what their columns are called, and what a cell may hold."""

from collections.abc import Mapping
from typing import Any

from stages.tasks._task import Task

NONE = "none"
Name = str | list[str]  # of one column of the data, or of several that are read together


def names_in_data(source: Mapping[str, Any], key: str) -> list[Name]:
    """Returns the column of the input ``key`` in the data of a source with these settings, then the
    name of the input itself if that is another one."""
    name = source.get(key, NONE)
    return [key] if name in (NONE, key) else [name, key]


def input_of(value: Any, place: str, kind: Task, key: str) -> Any:
    """Returns the text, the words or the list of texts in a cell of the input ``key``; raises
    ValueError for an invalid one."""
    content = kind.read(key, value, {}, place)
    try:
        "".join(content).encode()
    except UnicodeEncodeError:
        raise ValueError(f"{place} is not valid Unicode: half a surrogate pair") from None
    return content
