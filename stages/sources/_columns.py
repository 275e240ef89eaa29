"""Makes rows of a kind from the records of data; settings map the data's columns to the kind's."""

from collections.abc import Collection, Mapping
from dataclasses import field, make_dataclass, replace
from typing import Any, Literal

from stages.core.artifacts import Json
from stages.kinds._cells import EmptyCellError, text_of
from stages.kinds._kind import KINDS, SPLITS, Kind, Split, settings_of
from stages.sources._times import ISO, Time, check_time_format, time_of

NONE = "none"
EMPTY_CELLS = "empty_cells"
GROUP = "group"
TIME, TIME_FORMAT = "time", "time_format"
SPLIT_SEED = "split_seed"
Cells = Mapping[str, Any]  # the cells of a record, by the names of its columns


class _Text(Kind):
    """The kind of the documents of a corpus: rows without an answer."""

    inputs = ("text",)
    target = ""
    metrics = ()


class _Words(_Text):
    inputs = lists = ("words",)


TEXT, WORDS = _Text(), _Words()


class Columns:
    """The settings that map data to rows.

    They name the data's column for each column of a row (``translation.de`` is ``de`` in the
    objects of the column ``translation``) and say how cells are read (``tag_scheme``), whether a
    row with an empty cell is refused or left out (``empty_cells``), and how splits are drawn: by a
    hash of ``split_seed`` and the input or the column ``group``, or in the order of the column
    ``time``.

    In the methods, ``place`` is a record's file and line; messages of ValueError begin with it.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """Makes the object picklable. Its class, ``SCHEMA``, also has the name ``Columns``, under
        which pickle would find the base class."""
        return _of_settings, (vars(self),)

    def name_of(self, column: str) -> str:
        """Returns the name of the data's column that a row's ``column`` is read from."""
        return getattr(self, column)

    def renamed(self, names: Mapping[str, str]) -> "Columns":
        """Returns a copy of the settings that reads other columns of the data."""
        changed: Any = self
        return replace(changed, **names)

    def of(self, kind: Kind) -> list[tuple[str, str | list[str]]]:
        """Returns the columns of this kind's rows, each with the data's column (or list of columns)
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
            self.time_of(cells, place)
        except EmptyCellError as error:
            if getattr(self, EMPTY_CELLS) == "skip":
                return None
            hint = f"`{EMPTY_CELLS}: skip` leaves out such rows"
            raise EmptyCellError(f"{error}; {hint}") from None
        return kind.checked(row, place)

    def group_of(self, cells: Cells, place: str) -> str | None:
        """Returns a record's value in the column that ``group`` names, or None if it names none.

        Raises EmptyCellError for an empty cell, since its row may belong to any group.
        """
        name = self.name_of(GROUP)
        return None if name == NONE else text_of(cell(cells, name, place), f"{place}: {name}")

    def time_of(self, cells: Cells, place: str) -> Time | None:
        """Returns a record's time from the column that ``time`` names, or None if it names none.

        Raises EmptyCellError for an empty cell, since its row may belong to any split.
        """
        name = self.name_of(TIME)
        if name == NONE:
            return None
        return time_of(cell(cells, name, place), self.name_of(TIME_FORMAT), f"{place}: {name}")

    @property
    def split_seed(self) -> int:
        return getattr(self, SPLIT_SEED)

    def check_draw(self, given: Collection[Split]) -> None:
        """Raises ValueError if the settings for drawing splits contradict each other or the splits
        that the data has (``given``)."""
        by_hash = [GROUP] if self.name_of(GROUP) != NONE else []
        by_hash += [SPLIT_SEED] if self.split_seed else []
        is_timed = self.name_of(TIME) != NONE
        if by_hash and is_timed:
            raise ValueError(
                f"{TIME}: splits are drawn in the order of times alone, so that {by_hash[0]} would "
                "have no effect; leave one of them out"
            )
        if by_hash and set(given) == set(SPLITS):
            raise ValueError(
                f"{by_hash[0]}: train, validation and test are given, so that none is drawn; leave "
                "it out, or leave out a split that shall be drawn from train"
            )
        if is_timed and (own := [split for split in SPLITS[1:] if split in given]):
            raise ValueError(
                f"{TIME}: {' and '.join(own)} {'is' if len(own) == 1 else 'are'} given, but {TIME} "
                "draws all three splits from train; leave one of them out"
            )
        if self.name_of(TIME_FORMAT) != ISO:
            if not is_timed:
                raise ValueError(f"{TIME_FORMAT}: name the column, too: `{TIME}: NAME`")
            check_time_format(self.name_of(TIME_FORMAT))

    def _configured(self, kind: Kind) -> Kind:
        """Returns the kind with these settings for reading cells."""
        settings = {key: getattr(self, key) for key in settings_of(type(kind))}
        return type(kind)(**settings) if settings else kind


def _fields() -> list[tuple[str, Any, Any]]:
    """Returns the fields of ``SCHEMA``: every kind's columns and settings for reading cells,
    ``empty_cells``, and the settings for drawing splits. By default a required column is read from
    the data's column of the same name, and an optional column is not read."""
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
        (TIME, str, field(default=NONE)),
        (TIME_FORMAT, str, field(default=ISO)),
        (SPLIT_SEED, int, field(default=0)),
    ]


# The settings of a source that reads records: its ``schema``.
SCHEMA = make_dataclass("Columns", _fields(), bases=(Columns,), frozen=True, kw_only=True)


def _of_settings(settings: Mapping[str, Any]) -> Columns:
    return SCHEMA(**settings)


def draws_test(settings: Mapping[str, Any]) -> bool:
    """Whether a source that reads records draws its test rows by a hash. It does not with ``test``,
    with ``time``, or with a column ``split``, which is assumed to mark test rows."""
    return all(settings.get(key, NONE) == NONE for key in ("test", "split", TIME))


class MissingColumnError(ValueError):
    """A record lacks a requested column."""


def cell(cells: Cells, name: str, place: str) -> Any:
    """Returns the value in a column, or in a field of the column's objects (``column.field``).

    Raises MissingColumnError if the record has no such column or field.
    """
    value: Any = cells
    for key in [name] if name in cells else name.split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise MissingColumnError(f"{place}: no column {name!r}; there are: {', '.join(cells)}")
        value = value[key]
    return value
