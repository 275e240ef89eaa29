"""Makes rows of a kind from the records of data; settings map the data's columns to the kind's."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, make_dataclass
from datetime import UTC, date, datetime
from difflib import get_close_matches
from itertools import accumulate
from typing import Any, Literal, NamedTuple

from stages.core.artifacts import Json
from stages.tasks._cells import EmptyCellError, number_of, short, text_of
from stages.tasks._task import SPLITS, TASKS, Split, Task, settings_of

NONE = "none"
EMPTY_CELLS, EMPTY_SIGNS = "empty_cells", "empty_signs"
GROUP = "group"
TIME, TIME_FORMAT = "time", "time_format"
SPLIT_SEED = "split_seed"

Cells = Mapping[str, Any]  # the cells of a record, by the names of its columns


class _Text(Task):
    """The kind of the documents of a corpus: rows without an answer, which no model learns."""

    inputs = ("text",)
    target = ""
    metrics = ()
    encode = predict = None  # type: ignore


class _Words(_Text):
    inputs = lists = ("words",)


TEXT, WORDS = _Text.for_rows(), _Words.for_rows()


class Columns:
    """The settings that map data to rows: the data's column for each column of a row
    (``translation.de`` is a field of objects), how cells are read (``tag_scheme``), whether a row
    with an empty cell is refused or left out (``empty_cells``), which texts and numbers mean an
    empty one (``empty_signs``; of labels, ``no_label`` does), and how splits are drawn: by a hash
    of ``split_seed`` and the input or the column ``group``, or in the order of the column ``time``.
    Several columns of texts are joined by line breaks, without those that are empty.

    In the methods, ``place`` is a record's file and line; messages of ValueError begin with it.
    """

    text: str | list[str]
    target: str
    words: str
    tags: str
    empty_cells: str
    empty_signs: list[str | int] | Literal["none"]
    group: str
    time: str
    time_format: str
    split_seed: int

    def of(self, kind: Task) -> dict[str, str | list[str]]:
        """Returns the data's column (or list of columns) of each column of this kind's rows."""
        optional = [column for column in kind.optional if getattr(self, column) != NONE]
        columns = [*kind.inputs, *optional, *([kind.target] if kind.target else [])]
        # A column that is optional in another kind has the default NONE; here it is required.
        names = {column: getattr(self, column) for column in columns}
        return {column: column if name == NONE else name for column, name in names.items()}

    def names(self, kind: Task) -> list[str]:
        """Returns all columns of the data that are read for rows of this kind."""
        names = [*self.of(kind).values(), self.group, self.time]
        columns = (one for name in names for one in ([name] if isinstance(name, str) else name))
        return [name for name in columns if name != NONE]

    def read(self, cells: Cells, kind: Task, place: str) -> "ReadRow | None":
        """Returns the row of a record, or None for an empty document and a row that the settings
        leave out."""
        if settings := settings_of(kind):
            kind = kind.for_rows(**{key: getattr(self, key) for key in settings})
        row: Json = {}
        all_signs = [] if self.empty_signs == NONE else [*map(_sign, self.empty_signs)]
        group = time = None
        try:
            for column, name in self.of(kind).items():
                signs = [] if kind.has_classes and column == kind.target else all_signs
                if isinstance(name, str):
                    value, shown = cell(cells, name, place), name
                    value = "" if signs and _sign(value) in signs else value
                else:
                    value, shown = {n: cell(cells, n, place) for n in name}, ", ".join(name)
                    value |= {n: "" for n, v in value.items() if signs and _sign(v) in signs}
                row[column] = kind.read(column, value, row, f"{place}: {shown}")
            if self.group != NONE:
                group = text_of(cell(cells, self.group, place), f"{place}: {self.group}")
            if self.time != NONE:
                value = cell(cells, self.time, place)
                time = time_of(value, self.time_format, f"{place}: {self.time}")
        except EmptyCellError as error:
            if self.empty_cells == "skip" or not kind.target:
                return None
            hint = f"`{EMPTY_CELLS}: skip` leaves out such rows"
            raise EmptyCellError(f"{error}; {hint}") from None
        checked = kind.checked(row, place)
        return None if checked is None else ReadRow(checked, group, time)

    def check_draw(self, given: Collection[Split]) -> None:
        """Raises ValueError if the settings for drawing splits contradict each other or the splits
        that the data has (``given``)."""
        by_hash = [GROUP] * (self.group != NONE) + [SPLIT_SEED] * bool(self.split_seed)
        own = [split for split in SPLITS[1:] if split in given]
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
        if self.time != NONE and own:
            raise ValueError(
                f"{TIME}: {' and '.join(own)} {'is' if len(own) == 1 else 'are'} given, but {TIME} "
                "draws all three splits from train; leave one of them out"
            )
        if self.time_format != NONE and self.time == NONE:
            raise ValueError(f"{TIME_FORMAT}: name the column, too: `{TIME}: NAME`")
        if self.time_format != NONE and not re.search("%[YyGcx]", self.time_format):
            raise ValueError(f"{TIME_FORMAT}: {self.time_format!r} has no year (%Y)")


def _schema() -> Any:
    """Returns the settings of a source that reads records: every kind's columns and settings for
    reading cells, ``empty_cells``, and the settings for drawing splits. By default a required
    column is read from the data's column of the same name, and an optional column is not read."""
    kinds = TASKS.values()
    columns = {column: column for kind in kinds for column in (*kind.inputs, kind.target)}
    columns |= {column: NONE for kind in kinds for column in kind.optional}
    gathered = {column for kind in kinds for column in kind.several}
    settings = {key: each for kind in kinds for key, each in settings_of(kind).items()}
    fields: list[tuple[str, Any, Any]] = [
        *((c, str | list[str] if c in gathered else str, name) for c, name in columns.items()),
        *((key, each.annotation, each.default) for key, each in settings.items()),
        (EMPTY_CELLS, Literal["refuse", "skip"], "refuse"),
        (EMPTY_SIGNS, list[str | int] | Literal["none"], NONE),
        (GROUP, str, NONE),
        (TIME, str, NONE),
        (TIME_FORMAT, str, NONE),
        (SPLIT_SEED, int, 0),
    ]
    typed = [(name, of, field(default=default)) for name, of, default in fields]
    return make_dataclass("Columns", typed, bases=(Columns,), frozen=True, kw_only=True)


SCHEMA = _schema()


def draws_test(settings: Mapping[str, Any]) -> bool:
    """Whether a source that reads records draws its test rows by a hash. It does not with ``test``,
    with ``time``, or with a column ``split``, which is assumed to mark test rows."""
    return all(settings.get(key, NONE) == NONE for key in ("test", "split", TIME))


def _sign(value: Any) -> Any:
    """Returns a number, or another cell as text, to compare it with ``empty_signs``."""
    number = number_of(text := str(value).strip())
    return number if math.isfinite(number) else text


class MissingColumnError(ValueError):
    """A record lacks a requested column."""


def cell(cells: Cells, name: str, place: str) -> Any:
    """Returns the value in a column, or in a field of the column's objects (``column.field``)."""
    value: Any = cells
    for key in [name] if name in cells else name.split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise MissingColumnError(f"{place}: {no_column(name, cells)}")
        value = value[key]
    return value


def no_column(name: str, columns: Iterable[str]) -> str:
    columns = list(columns)
    near = get_close_matches(name, columns, n=1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"no column {name!r}; {guess}there are: {', '.join(columns)}"


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
    is_date = isinstance(value, date)
    shown = str(value) if is_date else text_of(value, place).strip()
    number = math.nan if is_date or time_format != NONE or "_" in shown else number_of(shown)
    if math.isfinite(number):
        return Time(number, shown, "a number")
    try:
        is_iso = is_date or time_format == NONE
        moment = datetime.fromisoformat(shown) if is_iso else datetime.strptime(shown, time_format)
    except ValueError:
        needed = (
            f"not in the `{TIME_FORMAT}` {time_format!r}"
            if time_format != NONE
            else f"neither an ISO date such as 2020-04-03 nor a number; `{TIME_FORMAT}` "
            "(--set time_format of make new) gives another form, such as '%d/%m/%Y'"
        )
        raise ValueError(f"{place} is {short(shown)}, {needed}") from None
    form = f"a time {'with' if moment.tzinfo else 'without'} an offset"
    return Time(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp(), shown, form)


def cuts_of(times: Iterable[tuple[Time, str]], column: str) -> Cuts:
    """Returns the cuts by which about 80 % of the rows are train, 10 % validation and 10 % test.
    Rows of equal time are in one split. ``times`` are those of all rows, each with its place."""
    places: dict[str, tuple[Time, str]] = {}  # the first row of each form
    counts = Counter[float]()
    for moment, place in times:
        places.setdefault(moment.form, (moment, place))
        counts[moment.value] += 1
    if len(places) > 1:
        (first, first_place), (other, place), *_ = places.values()
        raise ValueError(
            f"{place}: {column} is {short(other.shown)}, {other.form}, but {first_place} has "
            f"{short(first.shown)}, {first.form}; write all in one form"
        )
    if len(counts) < 3:
        raise ValueError(
            f"{TIME}: {column} has {len(counts)} different times, too few to draw three splits; "
            "give the splits yourself, or leave `time` out"
        )
    ordered = sorted(counts)
    earlier = [0, *accumulate(counts[value] for value in ordered)]  # rows before each time

    def nearest(share: float, candidates: range) -> int:
        return min(candidates, key=lambda i: abs(earlier[i] - share * earlier[-1]))

    validation = nearest(0.8, range(1, len(ordered) - 1))
    test = nearest(0.9, range(validation + 1, len(ordered)))
    return Cuts(ordered[validation], ordered[test])
