"""The value in one cell of a table, as a row of a task holds it."""

from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]  # of a task: its kind says what each column holds


class EmptyCellError(ValueError):
    """A cell that must hold something holds nothing."""


def text_of(value: Any, place: str) -> str:
    """A text, a number or a truth value as text.

    Raises EmptyCellError for an empty cell and ValueError for any other type, which begin with
    ``place``.
    """
    if value is None or value != value or (isinstance(value, str) and not value.strip()):
        raise EmptyCellError(f"{place} is empty")
    if not isinstance(value, str | int | float):
        raise ValueError(f"{place} must be a text, not {short(value)}")
    return str(value)


def list_of(value: Any, place: str) -> list[str]:
    """A list of texts, none of them empty; raises what ``text_of`` does."""
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
