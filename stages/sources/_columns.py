"""Makes rows of a kind from the records of data; settings map the data's columns to the kind's."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, make_dataclass, replace
from datetime import UTC, date, datetime, time
from itertools import accumulate
from typing import Any, Literal, NamedTuple

from stages.core.artifacts import Json
from stages.tasks._cells import EmptyCellError, short, text_of
from stages.tasks._kind import SPLITS, Kind, Split, settings_of
from stages.tasks._task import TASKS

NONE = "none"
EMPTY_CELLS = "empty_cells"
GROUP = "group"
TIME, TIME_FORMAT = "time", "time_format"
SPLIT_SEED = "split_seed"
FIRST_HELD_OUT = {"validation": 0.8, "test": 0.9}  # share of the rows before this split
_EXAMPLE = datetime(2003, 11, 25, 16, 47, 38, tzinfo=UTC)  # tells day, month and year apart

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
    """The settings that map data to rows: the data's column for each column of a row
    (``translation.de`` is a field of objects), how cells are read (``tag_scheme``), whether a row
    with an empty cell is refused or left out (``empty_cells``), and how splits are drawn: by a hash
    of ``split_seed`` and the input or the column ``group``, or in the order of the column ``time``.

    In the methods, ``place`` is a record's file and line; messages of ValueError begin with it.
    """

    empty_cells: str
    group: str
    time: str
    time_format: str
    split_seed: int

    def name_of(self, column: str) -> str:
        """Returns the name of the data's column that a row's ``column`` is read from."""
        return getattr(self, column)

    def renamed(self, names: Mapping[str, str]) -> "Columns":
        changed: Any = self
        return replace(changed, **names)

    def of(self, kind: Kind) -> dict[str, str | list[str]]:
        """Returns the data's column (or list of columns) of each column of this kind's rows."""
        optional = [column for column in kind.optional if self.name_of(column) != NONE]
        columns = [*kind.inputs, *optional, *([kind.target] if kind.target else [])]
        # A column that is optional in another kind has the default NONE; here it is required.
        names = {column: getattr(self, column) for column in columns}
        return {column: column if name == NONE else name for column, name in names.items()}

    def names(self, kind: Kind) -> list[str]:
        """Returns all columns of the data that are read for rows of this kind."""
        names = [*self.of(kind).values(), self.group, self.time]
        columns = (one for name in names for one in ([name] if isinstance(name, str) else name))
        return [name for name in columns if name != NONE]

    def read(self, cells: Cells, kind: Kind, place: str) -> "ReadRow | None":
        """Returns the row of a record, or None for an empty document and a row that the settings
        leave out."""
        if settings := settings_of(kind):
            kind = kind.for_rows(**{key: getattr(self, key) for key in settings})
        row: Json = {}
        group = time = None
        try:
            for column, name in self.of(kind).items():
                if isinstance(name, str):
                    value, shown = cell(cells, name, place), name
                else:
                    value, shown = {n: cell(cells, n, place) for n in name}, ", ".join(name)
                if not kind.target and isinstance(value, str) and not value.strip():
                    return None
                row[column] = kind.read(column, value, row, f"{place}: {shown}")
            if self.group != NONE:
                group = text_of(cell(cells, self.group, place), f"{place}: {self.group}")
            if self.time != NONE:
                value = cell(cells, self.time, place)
                time = time_of(value, self.time_format, f"{place}: {self.time}")
        except EmptyCellError as error:
            if self.empty_cells == "skip":
                return None
            hint = f"`{EMPTY_CELLS}: skip` leaves out such rows"
            raise EmptyCellError(f"{error}; {hint}") from None
        checked = kind.checked(row, place)
        return None if checked is None else ReadRow(checked, group, time)

    def check_draw(self, given: Collection[Split]) -> None:
        """Raises ValueError if the settings for drawing splits contradict each other or the splits
        that the data has (``given``)."""
        by_hash = [GROUP] * (self.group != NONE) + [SPLIT_SEED] * bool(self.split_seed)
        if by_hash and self.time != NONE:
            raise ValueError(
                f"{TIME}: splits are drawn in the order of times alone, so that {by_hash[0]} would "
                "have no effect; leave one of them out"
            )
        if by_hash and set(given) == set(SPLITS):
            raise ValueError(
                f"{by_hash[0]}: train, validation and test are given, so that none is drawn; leave "
                "it out, or leave out a split that shall be drawn from train"
            )
        if self.time != NONE and (own := [split for split in SPLITS[1:] if split in given]):
            raise ValueError(
                f"{TIME}: {' and '.join(own)} {'is' if len(own) == 1 else 'are'} given, but {TIME} "
                "draws all three splits from train; leave one of them out"
            )
        if self.time_format != NONE:
            if self.time == NONE:
                raise ValueError(f"{TIME_FORMAT}: name the column, too: `{TIME}: NAME`")
            try:
                read = datetime.strptime(_EXAMPLE.strftime(self.time_format), self.time_format)
            except ValueError as error:
                raise ValueError(f"{TIME_FORMAT}: {self.time_format!r}: {error}") from None
            if read.year != _EXAMPLE.year:
                raise ValueError(f"{TIME_FORMAT}: {self.time_format!r} has no year (%Y)")


def _fields() -> list[tuple[str, Any, Any]]:
    """Returns the fields of ``SCHEMA``: every kind's columns and settings for reading cells,
    ``empty_cells``, and the settings for drawing splits. By default a required column is read from
    the data's column of the same name, and an optional column is not read."""
    kinds = TASKS.values()
    columns = {column: column for kind in kinds for column in (*kind.inputs, kind.target)}
    columns |= {column: NONE for kind in kinds for column in kind.optional}
    gathered = {column for kind in kinds for column in kind.gathered}
    settings = {key: each for kind in kinds for key, each in settings_of(kind).items()}
    fields = [(c, str | list[str] if c in gathered else str, name) for c, name in columns.items()]
    fields += [(key, each.annotation, each.default) for key, each in settings.items()]
    fields += [
        (EMPTY_CELLS, Literal["refuse", "skip"], "refuse"),
        (GROUP, str, NONE),
        (TIME, str, NONE),
        (TIME_FORMAT, str, NONE),
        (SPLIT_SEED, int, 0),
    ]
    return [(name, of, field(default=default)) for name, of, default in fields]


# The settings of a source that reads records: its ``schema``.
SCHEMA = make_dataclass("Columns", _fields(), bases=(Columns,), frozen=True, kw_only=True)


def draws_test(settings: Mapping[str, Any]) -> bool:
    """Whether a source that reads records draws its test rows by a hash. It does not with ``test``,
    with ``time``, or with a column ``split``, which is assumed to mark test rows."""
    return all(settings.get(key, NONE) == NONE for key in ("test", "split", TIME))


class MissingColumnError(ValueError):
    """A record lacks a requested column."""


def cell(cells: Cells, name: str, place: str) -> Any:
    """Returns the value in a column, or in a field of the column's objects (``column.field``)."""
    value: Any = cells
    for key in [name] if name in cells else name.split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise MissingColumnError(f"{place}: no column {name!r}; there are: {', '.join(cells)}")
        value = value[key]
    return value


# Times -------------------------------------------------------------------------------------------


class Time(NamedTuple):
    """The time of a row: seconds since 1970, or the number in the cell, and the cell itself."""

    value: float
    shown: str
    form: str  # only times of one form can be compared


class ReadRow(NamedTuple):
    """A row of a kind, and the values that decide its split: None where they are not asked for."""

    row: Json
    group: str | None
    time: Time | None


class Cuts(NamedTuple):
    """The first time of validation and the first time of test."""

    validation: float
    test: float

    def split_of(self, value: float) -> Split:
        if value >= self.test:
            return "test"
        return "validation" if value >= self.validation else "train"


def time_of(value: Any, time_format: str, place: str) -> Time:
    """Returns the time in a cell: a date or a datetime in ISO 8601, a number (a year, seconds), or
    a text in ``time_format``, the format of ``datetime.strptime``. Nothing is guessed: 03/04/2020
    may be in March or in April."""
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    shown = str(value) if isinstance(value, datetime) else text_of(value, place).strip()
    try:
        if not isinstance(value, datetime) and time_format == NONE:
            if math.isfinite(number := _number(shown)):
                return Time(number, shown, "a number")
            value = datetime.fromisoformat(shown)
        elif not isinstance(value, datetime):
            value = datetime.strptime(shown, time_format)
    except ValueError:
        needed = (
            f"not in the `{TIME_FORMAT}` {time_format!r}"
            if time_format != NONE
            else f"neither an ISO date such as 2020-04-03 nor a number; `{TIME_FORMAT}` "
            "(--set time_format of make new) gives another form, such as '%d/%m/%Y'"
        )
        raise ValueError(f"{place} is {short(shown)}, {needed}") from None
    form = f"a time {'with' if value.tzinfo else 'without'} an offset"
    return Time(value.replace(tzinfo=value.tzinfo or UTC).timestamp(), shown, form)


def _number(text: str) -> float:
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


def cuts_of(times: Iterable[tuple[Time, str]], column: str) -> Cuts:
    """Returns the cuts by which about 80 % of the rows are train, 10 % validation and 10 % test.
    Rows of equal time are in one split. ``times`` are those of all rows, each with its place."""
    counts = Counter[float]()
    first: tuple[Time, str] | None = None
    for moment, place in times:
        first = first or (moment, place)
        if moment.form != first[0].form:
            raise ValueError(
                f"{place}: {column} is {short(moment.shown)}, {moment.form}, but {first[1]} has "
                f"{short(first[0].shown)}, {first[0].form}; write all in one form"
            )
        counts[moment.value] += 1
    if len(counts) < 3:
        raise ValueError(
            f"{TIME}: {column} has {len(counts)} different times, too few to draw three splits; "
            "give the splits yourself, or leave `time` out"
        )
    ordered = sorted(counts)
    earlier = [0, *accumulate(counts[value] for value in ordered)]  # rows before each time

    def nearest(split: str, candidates: range) -> int:
        share = FIRST_HELD_OUT[split] * earlier[-1]
        return min(candidates, key=lambda i: abs(earlier[i] - share))

    validation = nearest("validation", range(1, len(ordered) - 1))
    return Cuts(ordered[validation], ordered[nearest("test", range(validation + 1, len(ordered)))])
