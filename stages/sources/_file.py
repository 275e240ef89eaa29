"""Reads the rows and documents of one of the user's files, in whichever process needs them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from stages.core.artifacts import Json
from stages.core.parallel import grouped
from stages.core.text_files import opened
from stages.kinds._kind import SPLITS, Kind, Split, split_named
from stages.sources._columns import TEXT, WORDS, Columns, MissingColumnError, cell
from stages.sources._formats import (
    Delimiter,
    Record,
    Unit,
    can_be_cut,
    line_groups,
    read,
    records,
)
from stages.sources._source import (
    Document,
    Labelled,
    Part,
    drawn_from_train,
    folded_pieces,
    sentences_of,
)
from stages.sources._times import Cuts, Time

_PACKED = 3  # size of a text divided by the size of its .gz file, roughly


@dataclass(frozen=True)
class SourceFile:
    """A data file and how it is read. ``columns`` are the settings that map the file's columns to
    rows. ``names`` are the column names of a file without a header."""

    path: Path
    name: str  # the file's name in ids of documents
    format: str
    split: Split
    given: frozenset[Split]  # splits that the data has; the others are drawn
    columns: Columns
    names: tuple[str, ...] | None
    unit: Unit
    languages: tuple[str, ...]
    delimiter: Delimiter
    split_column: str | None = None
    cuts: Cuts | None = None  # between splits, if they are drawn by time

    def documents(self) -> Iterator[Document]:
        return self._documents(self.records())

    def examples(self, kind: Kind) -> Iterator[Labelled]:
        columns = {column for column, _ in self.columns.of(kind)}
        if self.format == "txt" and columns != {"text"}:
            raise ValueError(f"{self.path}: a txt file has no labels; if it has, name its `format`")
        for record, row in self._rows(self.records(), kind):
            group, time = self._group_of(record), self._time_of(record)
            key = kind.group_key(row) if group is None else group
            split = self._split_by_time(time) or self._drawn_from_train(record, key)
            yield Labelled(f"{self.name}:{record.key}", split, row, group=group, time=time)

    def times(self, kind: Kind | None) -> Iterator[tuple[Time, str]]:
        """Yields the time and the place of each row, or of each document if ``kind`` is None. The
        settings must name a column ``time``."""
        for record, _ in self._rows(self.records(), kind or self._kind_of_documents()):
            time = self._time_of(record)
            assert time is not None
            yield time, f"{self.path} {record.place}"

    def parts(self) -> Iterator[Part]:
        """Yields the documents in parts."""
        # A file that is one document is opened by the process that receives its part.
        if self.format == "txt" and self.unit == "file":
            packed = _PACKED if self.path.suffix == ".gz" else 1
            yield Part(self.path.stat().st_size * packed, self._whole)
        elif can_be_cut(self.format, self.unit):
            with opened(self.path) as binary:
                name = str(self.path)
                for first, lines in line_groups(binary, self.format, name=name, unit=self.unit):
                    yield Part(sum(map(len, lines)), partial(self._of_lines, first, lines))
        else:
            for group in grouped(self.records(), _size):
                yield Part(sum(map(_size, group)), partial(self._of_records, group))

    def _whole(self) -> list[Document]:
        return list(self.documents())

    def _of_lines(self, first: int, lines: list[bytes]) -> list[Document]:
        """Parses documents from ``lines`` and frees each line once it is read, since a line may be
        a whole book."""
        lines.reverse()
        parsed = records(
            (lines.pop() for _ in range(len(lines))),
            self.format,
            name=str(self.path),
            columns=self._names(),
            unit=self.unit,
            first=first,
        )
        return list(self._documents(parsed))

    def _of_records(self, parsed: list[Record]) -> list[Document]:
        return list(self._documents(iter(parsed)))

    def texts(self) -> Iterator[str]:
        """Yields the text of each document, not cut into sentences."""
        kind = self._kind_of_documents()
        for _, row in self._rows(self.records(), kind):
            yield from kind.texts(row)

    def _kind_of_documents(self) -> Kind:
        return WORDS if self.format in ("conll", "conllu") else TEXT

    def _documents(self, parsed: Iterator[Record]) -> Iterator[Document]:
        kind = self._kind_of_documents()
        for record, row in self._rows(parsed, kind):
            (text,) = kind.texts(row)
            group = self._group_of(record)
            if (by_time := self._split_by_time(self._time_of(record))) is not None:
                split = by_time
            elif group is not None:
                split = self._drawn_from_train(record, group)
            elif self.unit == "file":
                split = self._drawn_from_train(record, self.name)
            elif kind is TEXT:
                split = self._drawn_from_train(record, folded_pieces(text))
            else:
                split = self._drawn_from_train(record, kind.split_key(row))
            yield Document(f"{self.name}:{record.key}", split, sentences_of(text))

    def _rows(self, parsed: Iterable[Record], kind: Kind) -> Iterator[tuple[Record, Json]]:
        """Yields records with their rows, without rows that the settings leave out."""
        for record in parsed:
            try:
                row = self.columns.row(record.cells, kind, f"{self.path} {record.place}")
            except MissingColumnError as error:
                if self.split != "train":
                    hint = "leave out a file without labels, and its split is drawn from train"
                elif self.format in ("csv", "tsv") and self.names is None:
                    hint = "if its first line names none, give their names: `columns: [...]`"
                else:
                    raise
                raise ValueError(f"{error}; {hint}") from None
            if row is not None:
                yield record, row

    def _group_of(self, record: Record) -> str | None:
        return self.columns.group_of(record.cells, f"{self.path} {record.place}")

    def _time_of(self, record: Record) -> Time | None:
        return self.columns.time_of(record.cells, f"{self.path} {record.place}")

    def _split_by_time(self, time: Time | None) -> Split | None:
        if time is None:
            return None
        assert self.cuts is not None
        return self.cuts.split_of(time.value)

    def _drawn_from_train(self, record: Record, key: str | Iterable[str]) -> Split:
        return drawn_from_train(self.split_of(record), key, self.given, self.columns.split_seed)

    def split_of(self, record: Record) -> Split:
        """Returns the split that the data gives a record, by its file or in ``split_column``.
        Splits that the data lacks are drawn from train later."""
        if self.split_column is None:
            return self.split
        place = f"{self.path} {record.place}"
        value = cell(record.cells, self.split_column, place)
        split = split_named(str(value))
        if split is None:
            raise ValueError(f"{place}: {self.split_column} is {value!r}, not one of {SPLITS}")
        return split

    def records(self) -> Iterator[Record]:
        return read(
            self.path,
            self.format,
            columns=self._names(),
            unit=self.unit,
            languages=list(self.languages),
            delimiter=self.delimiter,
        )

    def _names(self) -> list[str] | None:
        if self.format == "conll" and self.names is None:
            return [self.columns.name_of(column) for column in ("words", "tags")]
        return None if self.names is None else list(self.names)


def _size(record: Record) -> int:
    return sum(map(_length, record.cells.values()))


def _length(cell: Any) -> int:
    return len(cell) if isinstance(cell, str | list) else 1
