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
from stages.sources._formats import Delimiter, Record, Unit, read
from stages.sources._source import Document, Labelled, Source, drawn_from_train, sentences_of
from stages.tasks._kind import Kind, Split


@dataclass(frozen=True)
class SourceFile:
    """A data file, and how it is read."""

    path: Path
    name: str  # in ids
    format: str
    split: Split
    columns: Columns
    names: list[str] | None  # of the columns of a file without a header
    unit: Unit
    languages: tuple[str, ...]
    delimiter: Delimiter

    def records(self) -> Iterator[Record]:
        names = self.names
        if self.format == "conll" and names is None:
            names = [self.columns.name_of(column) for column in ("words", "tags")]
        return read(
            self.path,
            self.format,
            columns=names,
            unit=self.unit,
            languages=self.languages,
            delimiter=self.delimiter,
        )


class Placed(NamedTuple):
    """A record of the data, and how it is read."""

    id: str  # of its row
    split: Split  # in the data; the splits that the data lacks are drawn from train
    place: str
    cells: Cells
    columns: Columns
    kind: Kind
    key: str | None = None  # its hash draws the split; by default that of the input
    hint: str = ""  # what helps if a column is missing


class RecordSource(Source):
    """A source of records, which a subclass yields together with the splits that are ``given``."""

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
    def placed(self, kind: Kind | None) -> Iterator[Placed]:
        """Yields the records; ``kind`` is None for a corpus."""

    def examples(self, kind: Kind) -> Iterator[Labelled]:
        for placed, read_row in self.rows(self.placed(kind)):
            split = self._split_of(placed, read_row, kind, kind.group_key(read_row.row))
            yield Labelled(placed.id, split, read_row.row, group=read_row.group, time=read_row.time)

    def documents(self) -> Iterator[Document]:
        for placed, read_row in self.rows(self.placed(None)):
            (text,) = placed.kind.texts(read_row.row)
            key = placed.key or placed.kind.split_key(read_row.row)
            yield Document(
                placed.id, self._split_of(placed, read_row, None, key), sentences_of(text)
            )

    def rows(self, records: Iterable[Placed]) -> Iterator[tuple[Placed, ReadRow]]:
        """Yields the records with their rows, without rows that the settings leave out."""
        self.columns.check_draw(self.given)
        for placed in records:
            try:
                read_row = placed.columns.read(placed.cells, placed.kind, placed.place)
            except MissingColumnError as error:
                raise ValueError(f"{error}{placed.hint}") from None
            if read_row is not None:
                yield placed, read_row

    def _split_of(self, placed: Placed, read_row: ReadRow, kind: Kind | None, key: str) -> Split:
        if read_row.time is not None:
            return self._cuts_of(kind).split_of(read_row.time.value)
        key = key if read_row.group is None else read_row.group
        return drawn_from_train(placed.split, key, self.given, self.columns.split_seed)

    def _cuts_of(self, kind: Kind | None) -> Cuts:
        """Returns the cuts between splits that are drawn by time. All rows are read_row first."""
        known: dict[Kind | None, Cuts] = vars(self).setdefault("_cuts", {})
        if kind not in known:
            rows = self.rows(self.placed(kind))
            times = ((read_row.time, placed.place) for placed, read_row in rows if read_row.time)
            known[kind] = cuts_of(times, self.columns.time)
        return known[kind]
