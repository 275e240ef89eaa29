"""Rows of a task out of records of data: which column holds what, and what may stand in it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stages.kinds._kind import Kind
from stages.sources._tags import Scheme, to_bio

NONE = "none"
# A document of a corpus is a row without an answer.
TEXT, WORDS = (Kind((column,), target="", metrics=()) for column in ("text", "words"))
Cells = Mapping[str, Any]  # of a record, by the names of its columns


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which column of the data each one of a row is; ``translation.de`` is ``de`` in the objects of
    the column ``translation``.

    Every method raises ValueError that begins with ``place``, the file and the line.
    """

    text: str = "text"
    text_pair: str = NONE
    label: str = "label"
    words: str = "words"
    tags: str = "tags"
    tag_scheme: Scheme = "bio"
    question: str = "question"
    context: str = "context"
    answers: str = "answers"
    unanswerable: Literal["keep", "drop"] = "keep"
    target: str = "target"

    def of(self, kind: Kind) -> list[tuple[str, str]]:
        """(column of a row of this kind, column of the data)."""
        optional = [column for column in kind.optional if getattr(self, column) != NONE]
        wanted = dict.fromkeys([*kind.inputs, *optional, kind.target])
        return [(column, getattr(self, column)) for column in wanted if column]

    def row(self, cells: Cells, kind: Kind, place: str) -> dict[str, Any] | None:
        """The row that a record is, or None if it is a question without an answer to be dropped,
        or an empty document."""
        row: dict[str, Any] = {}
        for column, name in self.of(kind):
            value = cell(cells, name, place)
            if not kind.target and isinstance(value, str) and not value.strip():
                return None
            if column == "answers":
                row[column] = _answers(value, row["context"], f"{place}: {name}")
            elif column in ("words", "tags"):
                row[column] = _list(value, f"{place}: {name}")
            elif column == "label":  # a class is none other with a blank behind it
                row[column] = text_of(value, f"{place}: {name}").strip()
            else:
                row[column] = text_of(value, f"{place}: {name}")
        if "tags" in row:
            if len(row["tags"]) != len(row["words"]):
                number, others = len(row["words"]), len(row["tags"])
                raise ValueError(f"{place}: {number} words need as many tags, not {others}")
            try:
                row["tags"] = to_bio(row["tags"], self.tag_scheme)
            except ValueError as error:
                raise ValueError(f"{place}: {error} (tag_scheme)") from None
        dropped = self.unanswerable == "drop" and row.get("answers") == []
        return None if dropped else row


class MissingColumnError(ValueError):
    """A row has no column of the name that is asked for."""


def cell(cells: Cells, name: str, place: str) -> Any:
    """The value in a column, or in a field of its objects."""
    value: Any = cells
    for key in [name] if name in cells else name.split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise MissingColumnError(f"{place}: no column {name!r}; there are: {', '.join(cells)}")
        value = value[key]
    return value


def text_of(value: Any, place: str) -> str:
    """A text, a number or a truth value as text; raises ValueError if there is none."""
    if value is None or value != value or (isinstance(value, str) and not value.strip()):
        raise ValueError(f"{place} is empty")
    if not isinstance(value, str | int | float):
        raise ValueError(f"{place} must be a text, not {_short(value)}")
    return str(value)


def _list(value: Any, place: str) -> list[str]:
    if not isinstance(value, list):
        raise ValueError(f"{place} must be a list of texts, not {_short(value)}")
    if not value:
        raise ValueError(f"{place} is empty")
    if all(isinstance(each, str) and each.strip() for each in value):
        return value
    return [text_of(each, f"{place}[{i}]") for i, each in enumerate(value)]


def _answers(value: Any, context: str, place: str) -> list[dict[str, Any]]:
    """``[{"text", "answer_start"}]``, also from the hub's ``{"text": [], "answer_start": []}``."""
    if isinstance(value, Mapping) and {"text", "answer_start"} <= value.keys():
        texts, starts = value["text"], value["answer_start"]
        if isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts):
            pairs = zip(texts, starts, strict=True)
            value = [{"text": text, "answer_start": start} for text, start in pairs]
    if not _are_answers(value):
        expected = '{"text": a text, "answer_start": its first character in the context}'
        raise ValueError(f"{place} must be a list of {expected}, not {_short(value)}")
    found = []
    for answer in value:
        text, start = answer["text"], answer["answer_start"]
        if not text or start < 0 or context[start : start + len(text)] != text:
            raise ValueError(
                f"{place}: {_short(text)} is not in the context at character {start}; "
                f"there stands {_short(context[max(start, 0) : start + max(len(text), 1)])}"
            )
        found.append({"text": text, "answer_start": start})
    return found


def _are_answers(value: Any) -> bool:
    return isinstance(value, Iterable) and all(
        isinstance(each, Mapping)
        and isinstance(each.get("text"), str)
        and type(each.get("answer_start")) is int
        for each in value
    )


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
