"""Reads the cells of tables as texts, lists and mappings."""

import ast
import io
import json
import re
import tokenize
from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]  # a row of a task; its kind defines the columns

# Lists printed by Python, pandas or R: set(), frozenset({'a'}), Index(['a'], dtype=object), c("a").
_WRAPPED = re.compile(
    r"(?:set|frozenset|list|tuple|deque|array|Index|OrderedDict|c)"
    r"\((.*?)(?:,\s*dtype=[^()]*)?\)",
    re.DOTALL,
)


class EmptyCellError(ValueError):
    """The error that a required cell is empty."""


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
    value = unprinted(value)
    if not isinstance(value, list):
        raise ValueError(f"{place} must be a list of texts, not {short(value)}")
    if not value:
        raise EmptyCellError(f"{place} is empty")
    if all(isinstance(each, str) and each.strip() for each in value):
        return value
    return [text_of(each, f"{place}[{i}]") for i, each in enumerate(value)]


def structure_of(text: str) -> list[Any] | dict[str, Any] | None:
    """Returns the list or the mapping that a text spells in JSON or as printed by Python or numpy,
    or None for any other text. Lists in csv files have this form."""
    text = text.strip()
    if re.fullmatch(r"""(["'])[\[{(].*\1""", text, re.DOTALL):
        text = text[1:-1]  # a list that was written as text twice
    if wrapped := _WRAPPED.fullmatch(text):
        inner = wrapped[1].strip()
        text = inner if inner.startswith(("[", "{", "(")) else f"[{inner}]"
    if text[:1] + text[-1:] not in ("[]", "{}", "()"):
        return None
    for read in (json.loads, _printed):
        try:
            value = read(text)
        except (ValueError, SyntaxError, tokenize.TokenError, MemoryError, RecursionError):
            continue
        if isinstance(value, list | dict):
            return value
        if isinstance(value, tuple | set):
            return list(value) if isinstance(value, tuple) else sorted(value, key=str)
    return None


def unprinted(cell: Any) -> Any:
    """Returns the list or the mapping that a text spells; any other cell as it is."""
    structure = structure_of(cell) if isinstance(cell, str) else None
    return cell if structure is None else structure


def structured(cell: Any) -> Any:
    """Returns the list or the mapping that a text spells, including a list without quotation marks;
    any other cell as it is."""
    read = unprinted(cell)
    if isinstance(read, str) and (text := read.strip())[:1] + text[-1:] == "[]":
        return [item.strip() for item in text[1:-1].split(",")]  # [joy, fear]
    return read


def _printed(text: str) -> Any:
    """Parses a value printed by Python or by numpy (``['a' 'b']``, ``array([1])``)."""
    text = re.sub(r",\s*dtype=[^)]*(?=\))", "", text)
    pieces, before = list[str](), tokenize.OP
    items = (tokenize.STRING, tokenize.NUMBER)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.string in ("array", "\n"):
            continue
        if token.type in items and before in items:  # Python would join two adjacent texts
            pieces.append(",")
        pieces.append("None" if token.string == "nan" else token.string)
        before = token.type
    return ast.literal_eval(" ".join(pieces).strip())


def short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
