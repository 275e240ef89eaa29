"""Rows of a kind out of records of data: which column of the data holds what."""

from collections.abc import Mapping
from dataclasses import field, make_dataclass, replace
from typing import Any, Literal

from stages.core.artifacts import Json
from stages.kinds._cells import EmptyCellError
from stages.kinds._kind import KINDS, Kind, settings_of

NONE = "none"
EMPTY_CELLS = "empty_cells"
Cells = Mapping[str, Any]  # of a record, by the names of its columns


class _Text(Kind):
    """A document of a corpus: a row without an answer."""

    inputs = ("text",)
    target = ""
    metrics = ()


class _Words(_Text):
    inputs = lists = ("words",)


TEXT, WORDS = _Text(), _Words()


class Columns:
    """Which column of the data each column of a row is (``translation.de`` is ``de`` in the objects
    of the column ``translation``), how cells are read (``tag_scheme``), and whether a row that
    lacks one is refused or left out (``empty_cells``).

    Every method raises ValueError that begins with ``place``, the file and the line.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """For other processes: pickle knows a class by its module's name for it."""
        return _of_settings, (vars(self),)

    def name_of(self, column: str) -> str:
        """The column of the data that is this ``column`` of a row."""
        return getattr(self, column)

    def renamed(self, names: Mapping[str, str]) -> "Columns":
        """The same with other columns of the data."""
        changed: Any = self
        return replace(changed, **names)

    def of(self, kind: Kind) -> list[tuple[str, str | list[str]]]:
        """(column of a row of this kind, column of the data, or the columns of a list)."""
        optional = [column for column in kind.optional if self.name_of(column) != NONE]
        wanted = dict.fromkeys([*kind.inputs, *optional, kind.target])
        names = {column: getattr(self, column) for column in wanted if column}
        # A column that another kind may do without is not read unless told: its name is NONE.
        return [(column, column if name == NONE else name) for column, name in names.items()]

    def names(self, kind: Kind) -> list[str]:
        """All columns of the data that a row of this kind is read from."""
        found = (name for _, name in self.of(kind))
        return [each for name in found for each in ([name] if isinstance(name, str) else name)]

    def row(self, cells: Cells, kind: Kind, place: str) -> Json | None:
        """The row of a record; None for a row that the settings leave out and for an empty
        document."""
        kind = self._as_asked(kind)
        row: Json = {}
        for column, name in self.of(kind):
            if isinstance(name, str):
                value, shown = cell(cells, name, place), name
            else:
                value, shown = [cell(cells, each, place) for each in name], ", ".join(name)
            if not kind.target and isinstance(value, str) and not value.strip():
                return None
            try:
                row[column] = kind.read(column, value, row, f"{place}: {shown}")
            except EmptyCellError:
                if getattr(self, EMPTY_CELLS) == "skip":
                    return None
                raise
        return kind.checked(row, place)

    def _as_asked(self, kind: Kind) -> Kind:
        """The kind with these settings of how cells are read."""
        settings = {key: getattr(self, key) for key in settings_of(type(kind))}
        return type(kind)(**settings) if settings else kind


def _fields() -> list[tuple[str, Any, Any]]:
    """Every kind's columns and settings of how cells are read, with their defaults: a column has
    its own name, an optional one is not read. And what becomes of a row that lacks a cell."""
    columns = {column: column for kind in KINDS.values() for column in (*kind.inputs, kind.target)}
    columns |= {column: NONE for kind in KINDS.values() for column in kind.optional}
    gathered = {column for kind in KINDS.values() for column in kind.gathered}
    settings = {
        key: each for kind in KINDS.values() for key, each in settings_of(type(kind)).items()
    }
    return [
        *(
            (column, str | list[str] if column in gathered else str, field(default=name))
            for column, name in columns.items()
        ),
        *((key, each.annotation, field(default=each.default)) for key, each in settings.items()),
        (EMPTY_CELLS, Literal["refuse", "skip"], field(default="refuse")),
    ]


# What a source that reads records takes from params.yaml for them: its ``schema``.
SCHEMA = make_dataclass("Columns", _fields(), bases=(Columns,), frozen=True, kw_only=True)


def _of_settings(settings: Mapping[str, Any]) -> Columns:
    return SCHEMA(**settings)


class MissingColumnError(ValueError):
    """A record has no column of the name that is asked for."""


def cell(cells: Cells, name: str, place: str) -> Any:
    """The value in a column, or in a field of its objects."""
    value: Any = cells
    for key in [name] if name in cells else name.split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise MissingColumnError(f"{place}: no column {name!r}; there are: {', '.join(cells)}")
        value = value[key]
    return value
