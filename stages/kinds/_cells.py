"""The value in one cell of a table, as a row of a task holds it."""

from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]  # a row of a task; its kind defines the columns


class EmptyCellError(ValueError):
    """A cell that must not be empty is empty."""


def text_of(value: Any, place: str) -> str:
    """Returns a text, a number or a truth value as text.

    Raises EmptyCellError for an empty cell and ValueError for any other type; the message begins
    with ``place``.
    """
    if value is None or value != value or (isinstance(value, str) and not value.strip()):
        raise EmptyCellError(f"{place} is empty")
    if not isinstance(value, str | int | float):
        raise ValueError(f"{place} must be a text, not {short(value)}")
    return str(value)


def list_of(value: Any, place: str) -> list[str]:
    """Returns a list of texts, none of them empty; raises the errors of ``text_of``."""
    if not isinstance(value, list):
        raise ValueError(f"{place} must be a list of texts, not {short(value)}")
    if not value:
        raise EmptyCellError(f"{place} is empty")
    if all(isinstance(each, str) and each.strip() for each in value):
        return value
    return [text_of(each, f"{place}[{i}]") for i, each in enumerate(value)]


def short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
