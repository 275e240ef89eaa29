"""Sources that read records: documents and examples by the settings of columns and splits."""

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from stages.core.components import Settings
from stages.sources._columns import (
    SCHEMA,
    Cells,
    Columns,
    Cuts,
    MissingColumnError,
    ReadRow,
    cuts_of,
    draws_test,
)
from stages.sources._formats import Record, read
from stages.sources._source import Document, Labelled, Source, drawn_from_train, sentences_of
from stages.tasks._cells import EmptyCellError
from stages.tasks._task import Split, Task


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
    """A source of records, which a subclass yields together with the splits that are ``given``.

    The first parameter of the constructor is ``naming: Columns``, made of the settings in
    ``schema``; the subclass keeps it as ``columns``.
    """

    schema = SCHEMA
    columns: Columns

    @classmethod
    def draws_test(cls, settings: Settings) -> bool:
        return draws_test(settings)

    @property
    @abstractmethod
    def given(self) -> Collection[Split]:
        """The splits that the data has; the others are drawn."""

    @abstractmethod
    def parts(self, kind: Task | None) -> Iterable[Iterable[Placed]]:
        """Returns the records of each file or split; ``kind`` is None for a corpus, whose records
        are of the kind ``TEXT`` (``_columns.py``)."""

    def check(self, kind: Task | None) -> None:
        """Reads the first document or example of each part."""
        for part in self.parts(kind):
            next(self._rows(part), None)

    def examples(self, kind: Task) -> Iterator[Labelled]:
        for placed, row in self._all_rows(kind):
            split = self._split_of(placed, row, kind, kind.group_key(row.row))
            yield Labelled(placed.id, split, row.row, group=row.group, time=row.time)

    def documents(self) -> Iterator[Document]:
        for placed, row in self._all_rows(None):
            (text,) = placed.kind.texts(row.row)
            key = placed.key or placed.kind.split_key(row.row)
            split = self._split_of(placed, row, None, key)
            yield Document(placed.id, split, sentences_of(text))

    def _all_rows(self, kind: Task | None) -> Iterator[tuple[Placed, ReadRow]]:
        for part in self.parts(kind):
            yield from self._rows(part)

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

    def _split_of(self, placed: Placed, row: ReadRow, kind: Task | None, key: str) -> Split:
        if row.time is not None:
            return self._cuts_of(kind).split_of(row.time.value)
        key = key if row.group is None else row.group
        return drawn_from_train(placed.split, key, self.given, self.columns.split_seed)

    def _cuts_of(self, kind: Task | None) -> Cuts:
        """Returns the cuts between splits that are drawn by time. All rows are read first."""
        known: dict[Task | None, Cuts] = vars(self).setdefault("_cuts", {})
        if kind not in known:
            rows = self._all_rows(kind)
            times = ((row.time, placed.place) for placed, row in rows if row.time)
            known[kind] = cuts_of(times, self.columns.time)
        return known[kind]
