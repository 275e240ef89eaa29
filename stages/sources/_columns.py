"""Sources that read records: settings map the data's columns to those of rows, and draw splits."""

import math
import re
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, date, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.sources._formats import Record, read
from stages.sources._source import Document, Labelled, Source, Time, sentences_of, split_of
from stages.tasks._cells import EmptyCellError, number_of, short, text_of
from stages.tasks._task import SPLITS, TASKS, Split, Task

NONE = "none"
EMPTY_CELLS, EMPTY_SIGNS = "empty_cells", "empty_signs"
GROUP = "group"
TIME, TIME_FORMAT = "time", "time_format"
SPLIT_SEED = "split_seed"

Cells = Mapping[str, Any]  # the cells of a record, by the names of its columns
Name = str | list[str]  # of one column of the data, or of several that are read together


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
    """The settings that map data to rows.

    They name the data's column for each column of a row (``translation.de`` is a field of objects;
    several columns of texts are joined by line breaks, without those that are empty) and say how
    cells are read (``tag_scheme``), whether a row with an empty cell is refused or left out
    (``empty_cells``), and which texts and numbers mean an empty one (``empty_signs``; of labels,
    ``no_label`` does).

    Splits are drawn by a hash of ``split_seed`` and the input, or the column ``group`` (a user, a
    patient), whose rows are then in one split. Or by the column ``time``: the earliest 80 % of the
    rows are train, the latest 10 % test, and rows of equal time are in one split. Times are ISO
    dates or numbers, or written as ``time_format`` says (``'%d/%m/%Y'``).

    In the methods, ``place`` is a record's file and line; messages of ValueError begin with it.
    """

    text: Name
    target: str
    words: str
    tags: str
    empty_cells: str
    empty_signs: list[str | int] | Literal["none"]
    group: str
    time: str
    time_format: str
    split_seed: int

    def of(self, kind: Task) -> dict[str, Name]:
        """Returns the data's column (or list of columns) of each column of this kind's rows."""
        columns = (*kind.inputs, *kind.optional, *filter(None, [kind.target]))
        names = {column: getattr(self, column) for column in columns}
        # A column that is optional in another kind has the default NONE, and may be required here.
        return {
            column: column if name == NONE else name
            for column, name in names.items()
            if name != NONE or column not in kind.optional
        }

    def read(self, cells: Cells, kind: Task, place: str) -> "ReadRow | None":
        """Returns the row of a record, or None for an empty document and a row that the settings
        leave out."""
        if kind.cell_settings:
            kind = kind.for_rows(**{key: getattr(self, key) for key in kind.cell_settings})
        row: Json = {}
        signs = [] if self.empty_signs == NONE else [*map(_sign, self.empty_signs)]
        group = time = None
        try:
            for column, name in self.of(kind).items():
                names = [name] if isinstance(name, str) else name
                values = {each: cell(cells, each, place) for each in names}
                if signs and not (kind.has_classes and column == kind.target):
                    values |= {each: "" for each, v in values.items() if _sign(v) in signs}
                value = values[name] if isinstance(name, str) else values
                row[column] = kind.read(column, value, row, f"{place}: {', '.join(names)}")
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
        if own and self.time != NONE:
            verb = "is" if len(own) == 1 else "are"
            raise ValueError(
                f"{TIME}: {' and '.join(own)} {verb} given, but {TIME} draws all three splits from "
                "train; leave one of them out"
            )
        if self.time_format != NONE and self.time == NONE:
            raise ValueError(f"{TIME_FORMAT}: name the column, too: `{TIME}: NAME`")
        if self.time_format != NONE and not re.search("%[YyGcx]", self.time_format):
            raise ValueError(f"{TIME_FORMAT}: {self.time_format!r} has no year (%Y)")


def _schema() -> Any:
    """Returns ``Columns`` with every kind's columns and settings for reading cells. By default a
    required column is read from the data's column of the same name, and an optional one is not."""
    kinds = TASKS.values()
    columns = {column: column for kind in kinds for column in (*kind.inputs, kind.target)}
    columns |= {column: NONE for kind in kinds for column in kind.optional}
    gathered = {column for kind in kinds for column in kind.several}
    fields = {c: (Name if c in gathered else str, name) for c, name in columns.items()}
    fields |= {key: tuple(each) for kind in kinds for key, each in kind.cell_settings.items()}
    fields |= {
        EMPTY_CELLS: (Literal["refuse", "skip"], "refuse"),
        EMPTY_SIGNS: (list[str | int] | Literal["none"], NONE),
        **dict.fromkeys((GROUP, TIME, TIME_FORMAT), (str, NONE)),
        SPLIT_SEED: (int, 0),
    }
    typed = [(name, of, field(default=default)) for name, (of, default) in fields.items()]
    return make_dataclass("Columns", typed, bases=(Columns,), frozen=True, kw_only=True)


SCHEMA = _schema()


def draws_test(settings: Mapping[str, Any]) -> bool:
    """Whether a source of records draws its test rows by a hash. A column ``split`` is assumed to
    mark test rows."""
    return all(settings.get(key, NONE) == NONE for key in ("test", "split", TIME))


def _sign(value: Any) -> Any:
    """Returns a number, or another cell as text, to compare it with ``empty_signs``."""
    number = number_of(text := str(value).strip())
    return number if math.isfinite(number) else text


def names_in_data(source: Mapping[str, Any], key: str) -> list[Name]:
    """Returns the column of the input ``key`` in the data of a source with these settings, then the
    name of the input itself if that is another one."""
    name = source.get(key, NONE)
    return [key] if name in (NONE, key) else [name, key]


def input_of(value: Any, place: str, kind: Task, key: str) -> Any:
    """Returns the value of the input ``key`` from a cell; raises ValueError for an invalid one."""
    content = kind.read(key, value, {}, place)
    try:
        "".join(content).encode()
    except UnicodeEncodeError:
        raise ValueError(f"{place} is not valid Unicode: half a surrogate pair") from None
    return content


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
        return SPLITS[bisect_right(self, value)]


def time_of(value: Any, time_format: str, place: str) -> Time:
    """Returns the time in a cell: a date or a datetime in ISO 8601, a number (a year, seconds), or
    a text in ``time_format``. Nothing is guessed: 03/04/2020 may be in March or in April."""
    is_date = isinstance(value, date)
    shown = str(value) if is_date else text_of(value, place).strip()
    number = math.nan if is_date or time_format != NONE or "_" in shown else number_of(shown)
    if math.isfinite(number):
        return Time(number, shown, "a number")
    needed = f"not in the `{TIME_FORMAT}` {time_format!r}"
    if time_format == NONE:
        needed = (
            f"neither an ISO date such as 2020-04-03 nor a number; `{TIME_FORMAT}` "
            "(--set time_format of make new) gives another form, such as '%d/%m/%Y'"
        )
    try:
        is_iso = is_date or time_format == NONE
        moment = datetime.fromisoformat(shown) if is_iso else datetime.strptime(shown, time_format)
    except ValueError:
        raise ValueError(f"{place} is {short(shown)}, {needed}") from None
    form = f"a time {'with' if moment.tzinfo else 'without'} an offset"
    return Time(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp(), shown, form)


def cuts_of(times: Iterable[tuple[Time | None, str]], column: str) -> Cuts:
    """Returns the cuts by which about 80 % of the rows are train, 10 % validation and 10 % test.
    Rows of equal time are in one split. ``times`` are those of all rows, each with its place."""
    places: dict[str, tuple[Time, str]] = {}  # the first row of each form
    values = list[float]()
    for moment, place in times:
        if moment is not None:
            places.setdefault(moment.form, (moment, place))
            values.append(moment.value)
    if len(places) > 1:
        (first, first_place), (other, place), *_ = places.values()
        raise ValueError(
            f"{place}: {column} is {short(other.shown)}, {other.form}, but {first_place} has "
            f"{short(first.shown)}, {first.form}; write all in one form"
        )
    ordered, counts = np.unique(values, return_counts=True)
    if len(ordered) < 3:
        raise ValueError(
            f"{TIME}: {column} has {len(ordered)} different times, too few to draw three splits; "
            "give the splits yourself, or leave `time` out"
        )
    earlier = counts.cumsum() - counts  # rows before each time
    validation = 1 + int(np.abs(earlier[1:-1] - 0.8 * len(values)).argmin())
    test = validation + 1 + int(np.abs(earlier[validation + 1 :] - 0.9 * len(values)).argmin())
    return Cuts(float(ordered[validation]), float(ordered[test]))


@dataclass(frozen=True)
class SourceFile:
    """A data file, and how it is read."""

    path: Path
    name: str  # in ids
    format: str
    split: Split
    reading: Settings  # the arguments of ``read``

    def records(self) -> Iterator[Record]:
        return read(self.path, self.format, **self.reading)


class Placed(NamedTuple):
    """A record of the data, and how it is read."""

    id: str  # of its row
    split: Split  # in the data; the splits that the data lacks are drawn from train
    place: str
    cells: Cells
    kind: Task
    key: str | None = None  # its hash draws the split; by default that of the input
    hint: str = ""  # what helps if a column is missing


class RecordSource(Source):
    """A source of records. The first parameter of a subclass's constructor is made of the settings
    in ``schema``."""

    schema = SCHEMA
    columns: Columns  # set by the constructor

    @property
    @abstractmethod
    def given(self) -> Collection[Split]:
        """The splits that the data has; the others are drawn."""

    @classmethod
    def draws_test(cls, settings: Settings) -> bool:
        return draws_test(settings)

    @abstractmethod
    def parts(self, kind: Task | None) -> Iterable[Iterable[Placed]]:
        """Returns the records of each file or split; ``kind`` is None for a corpus, whose records
        are of the kind ``TEXT`` (``_columns.py``)."""

    def check(self, kind: Task | None) -> None:
        """Reads the first document or example of each part."""
        for part in self.parts(kind):
            next(self._rows(part), None)

    def examples(self, kind: Task) -> Iterator[Labelled]:
        for placed, row, split in self._with_splits(kind):
            yield Labelled(placed.id, split, row.row, group=row.group, time=row.time)

    def documents(self) -> Iterator[Document]:
        for placed, row, split in self._with_splits(None):
            (text,) = placed.kind.texts(row.row)
            yield Document(placed.id, split, sentences_of(text))

    def _with_splits(self, kind: Task | None) -> Iterator[tuple[Placed, ReadRow, Split]]:
        """Yields all rows. They are read twice if splits are drawn by time."""
        cuts, seed = None, self.columns.split_seed
        if self.columns.time != NONE:
            rows = (each for part in self.parts(kind) for each in self._rows(part))
            cuts = cuts_of(((row.time, placed.place) for placed, row in rows), self.columns.time)
        for placed, row in (each for part in self.parts(kind) for each in self._rows(part)):
            split = placed.split
            if cuts is not None and row.time is not None:
                split = cuts.split_of(row.time.value)
            elif split == "train":
                drawn = split_of(row.group or placed.key or placed.kind.group_key(row.row), seed)
                split = split if drawn in self.given else drawn
            yield placed, row, split

    def _rows(self, part: Iterable[Placed]) -> Iterator[tuple[Placed, ReadRow]]:
        """Yields the records of a part with their rows, without rows that the settings leave out.
        An absent key of JSON is an empty cell, but not if no record of the part has the key. Raises
        the errors of ``Columns.read``."""
        self.columns.check_draw(self.given)
        absent: str | None = None
        is_read = False
        for placed in part:
            try:
                row = self.columns.read(placed.cells, placed.kind, placed.place)
            except MissingColumnError as error:
                absent = absent or f"{error}{placed.hint}"
                continue
            is_read |= row is not None
            if is_read and absent and self.columns.empty_cells == "refuse":
                raise EmptyCellError(absent)
            if row is not None:
                yield placed, row
        if absent and not (is_read and self.columns.empty_cells == "skip"):
            raise (EmptyCellError if is_read else ValueError)(absent)
