"""Makes rows of a kind from records of data, by the names of the data's columns."""

from collections.abc import Collection, Mapping
from dataclasses import field, make_dataclass, replace
from typing import Any, Literal

from stages.core.artifacts import Json
from stages.kinds._cells import EmptyCellError, text_of
from stages.kinds._kind import KINDS, SPLITS, Kind, Split, settings_of

NONE = "none"
EMPTY_CELLS = "empty_cells"
GROUP = "group"
Cells = Mapping[str, Any]  # the cells of a record, by the names of its columns


class _Text(Kind):
    """A document of a corpus: a row without an answer."""

    inputs = ("text",)
    target = ""
    metrics = ()


class _Words(_Text):
    inputs = lists = ("words",)


TEXT, WORDS = _Text(), _Words()


class Columns:
    """The settings that map data to rows: the column of the data for each column of a row
    (``translation.de`` is ``de`` in the objects of the column ``translation``), how cells are read
    (``tag_scheme``), whether a row that lacks a cell is refused or left out (``empty_cells``), and
    the column by which splits are drawn (``group``).

    Every method raises ValueError that begins with ``place``, the file and the line.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """Makes the object picklable: the name of its class, ``SCHEMA``, is ``Columns``, by which
        pickle would find the base class instead."""
        return _of_settings, (vars(self),)

    def name_of(self, column: str) -> str:
        """Returns the column of the data that the ``column`` of a row is read from."""
        return getattr(self, column)

    def renamed(self, names: Mapping[str, str]) -> "Columns":
        """Returns the settings with other columns of the data."""
        changed: Any = self
        return replace(changed, **names)

    def of(self, kind: Kind) -> list[tuple[str, str | list[str]]]:
        """Returns each column of a row of this kind with the data's column, or list of columns,
        that it is read from."""
        optional = [column for column in kind.optional if self.name_of(column) != NONE]
        columns = dict.fromkeys([*kind.inputs, *optional, kind.target])
        names = {column: getattr(self, column) for column in columns if column}
        # A column that is optional in another kind has the default NONE. If this kind requires it,
        # its default is its own name.
        return [(column, column if name == NONE else name) for column, name in names.items()]

    def names(self, kind: Kind) -> list[str]:
        """Returns all columns of the data that a row of this kind is read from."""
        names = (name for _, name in self.of(kind))
        return [each for name in names for each in ([name] if isinstance(name, str) else name)]

    def row(self, cells: Cells, kind: Kind, place: str) -> Json | None:
        """Returns the row of a record, or None for an empty document and a row that the settings
        leave out."""
        kind = self._configured(kind)
        row: Json = {}
        try:
            for column, name in self.of(kind):
                if isinstance(name, str):
                    value, shown = cell(cells, name, place), name
                else:
                    value, shown = {n: cell(cells, n, place) for n in name}, ", ".join(name)
                if not kind.target and isinstance(value, str) and not value.strip():
                    return None
                row[column] = kind.read(column, value, row, f"{place}: {shown}")
            self.group_of(cells, place)
        except EmptyCellError as error:
            if getattr(self, EMPTY_CELLS) == "skip":
                return None
            hint = f"`{EMPTY_CELLS}: skip` leaves out such rows"
            raise EmptyCellError(f"{error}; {hint}") from None
        return kind.checked(row, place)

    def group_of(self, cells: Cells, place: str) -> str | None:
        """Returns the value of a record in the column ``group``, or None if no column is named.

        Raises EmptyCellError, since a row without a group may belong to any.
        """
        name = self.name_of(GROUP)
        return None if name == NONE else text_of(cell(cells, name, place), f"{place}: {name}")

    def check_group(self, given: Collection[Split]) -> None:
        """Raises ValueError if groups are named although all splits are ``given``."""
        if self.name_of(GROUP) != NONE and set(given) == set(SPLITS):
            raise ValueError(
                f"{GROUP}: train, validation and test are given, so that none is drawn; leave it "
                "out, or leave out a split that shall be drawn from train"
            )

    def _configured(self, kind: Kind) -> Kind:
        """Returns the kind with these settings for reading cells."""
        settings = {key: getattr(self, key) for key in settings_of(type(kind))}
        return type(kind)(**settings) if settings else kind


def _fields() -> list[tuple[str, Any, Any]]:
    """Returns every kind's columns and settings for reading cells, with their defaults, and
    ``empty_cells`` and ``group``. A required column has its own name; an optional one is not
    read."""
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
        (GROUP, str, field(default=NONE)),
    ]


# The settings of a source that reads records: its ``schema``.
SCHEMA = make_dataclass("Columns", _fields(), bases=(Columns,), frozen=True, kw_only=True)


def _of_settings(settings: Mapping[str, Any]) -> Columns:
    return SCHEMA(**settings)


class MissingColumnError(ValueError):
    """A record lacks a requested column."""


def cell(cells: Cells, name: str, place: str) -> Any:
    """Returns the value in a column, or in a field of the column's objects (``column.field``).

    Raises MissingColumnError.
    """
    value: Any = cells
    for key in [name] if name in cells else name.split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise MissingColumnError(f"{place}: no column {name!r}; there are: {', '.join(cells)}")
        value = value[key]
    return value
