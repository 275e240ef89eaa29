"""A file of one's own, and how its rows and documents are read; any process can."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from stages.core.artifacts import Json
from stages.core.parallel import grouped
from stages.kinds._kind import Kind, Split
from stages.sources._columns import TEXT, WORDS, Columns, MissingColumnError
from stages.sources._formats import (
    Delimiter,
    Record,
    Unit,
    can_be_cut,
    line_groups,
    opened,
    read,
    records,
)
from stages.sources._source import (
    Document,
    Labelled,
    Part,
    document_split,
    drawn_from_train,
    sentences_of,
)

_PACKED = 3  # times the size of a .gz file is that of its text, about


@dataclass(frozen=True)
class SourceFile:
    """``columns`` are the settings of rows, ``names`` those of a file that names none."""

    path: Path
    name: str  # in ids of documents
    format: str
    split: Split
    given: frozenset[Split]  # the splits that have files of their own
    columns: Columns
    names: tuple[str, ...] | None
    unit: Unit
    languages: tuple[str, ...]
    delimiter: Delimiter

    def documents(self) -> Iterator[Document]:
        return self._documents(self.records())

    def examples(self, kind: Kind) -> Iterator[Labelled]:
        columns = {column for column, _ in self.columns.of(kind)}
        if self.format == "txt" and columns != {"text"}:
            raise ValueError(f"{self.path}: a txt file has no labels; if it has, name its `format`")
        for record, row in self._rows(self.records(), kind):
            split = drawn_from_train(self.split, kind.group_key(row), self.given)
            yield Labelled(f"{self.name}:{record.key}", split, row)

    def parts(self) -> Iterator[Part]:
        """The documents, in parts."""
        if self.format == "txt" and self.unit == "file":  # opened by who reads it
            packed = _PACKED if self.path.suffix == ".gz" else 1
            yield Part(self.path.stat().st_size * packed, self._whole)
        elif can_be_cut(self.format, self.unit):
            with opened(self.path) as binary:
                name = str(self.path)
                for first, lines in line_groups(binary, self.format, name=name, unit=self.unit):
                    yield Part(sum(map(len, lines)), partial(self._of_lines, first, lines))
        else:
            for some in grouped(self.records(), _size):
                yield Part(sum(map(_size, some)), partial(self._of_records, some))

    def _whole(self) -> list[Document]:
        return list(self.documents())

    def _of_lines(self, first: int, lines: list[bytes]) -> list[Document]:
        """``lines`` are given up as they are read: one may be a whole book."""
        lines.reverse()
        found = records(
            (lines.pop() for _ in range(len(lines))),
            self.format,
            name=str(self.path),
            columns=self._names(),
            unit=self.unit,
            first=first,
        )
        return list(self._documents(found))

    def _of_records(self, some: list[Record]) -> list[Document]:
        return list(self._documents(iter(some)))

    def texts(self) -> Iterator[str]:
        """The text of each document, not cut into sentences."""
        kind = self._kind_of_documents()
        for _, row in self._rows(self.records(), kind):
            yield from kind.texts(row)

    def _kind_of_documents(self) -> Kind:
        return WORDS if self.format in ("conll", "conllu") else TEXT

    def _documents(self, found: Iterator[Record]) -> Iterator[Document]:
        kind = self._kind_of_documents()
        for record, row in self._rows(found, kind):
            (text,) = kind.texts(row)
            if self.unit == "file":
                split = drawn_from_train(self.split, self.name, self.given)
            elif kind is TEXT:
                split = document_split(self.split, text, self.given)
            else:
                split = drawn_from_train(self.split, kind.split_key(row), self.given)
            yield Document(f"{self.name}:{record.key}", split, sentences_of(text))

    def _rows(self, found: Iterable[Record], kind: Kind) -> Iterator[tuple[Record, Json]]:
        """Without those that lack a cell and are left out."""
        for record in found:
            row = self._row(record, kind)
            if row is not None:
                yield record, row

    def _row(self, record: Record, kind: Kind) -> Json | None:
        try:
            return self.columns.row(record.cells, kind, f"{self.path} {record.place}")
        except MissingColumnError as error:
            if self.format not in ("csv", "tsv") or self.names is not None:
                raise
            hint = "if its first line names none, give their names: `columns: [...]`"
            raise ValueError(f"{error}; {hint}") from None

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
