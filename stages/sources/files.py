"""One's own files: text for a corpus, or labelled rows for a task."""

import csv
import gzip
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from stages.components import unknown
from stages.sources._sentences import sentences
from stages.sources._source import Document, Labelled, Split, same_input, split_of

NONE = "none"
FORMATS = ("txt", "csv", "tsv", "jsonl", "json", "conll", "conllu")
CONLLU = ["ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC"]
Lines = Iterable[tuple[int, str]]  # numbered from 1
Record = tuple[int, dict[str, Any]]  # the line it begins on, its cells by the names of columns


class Files:
    """Documents or examples of txt, csv, tsv, jsonl, json, conll and conllu files, also .gz.

    ``path`` is a file or a folder. ``train``, ``validation`` and ``test`` name files in the
    folder. A split without a file is drawn from train's (from every file of the folder if none is
    named), by a hash of the text; by one of the file's name where ``unit`` is ``file``.

    A corpus is the text of txt files, of which ``unit`` says what a document is (a paragraph ends
    at a blank line), or the column ``text`` of the other formats, a document a row.

    A task is the columns ``text``, ``label`` and perhaps ``text_pair``; in conll files, ``text``
    is the column of words and ``label`` that of tags. ``columns`` names the columns of a file
    that has no header; a conll file has ``[text, label]`` unless it says otherwise, a conllu file
    FORM and UPOS. ``format`` is for file names that do not tell it.

    Raises ValueError with the file and the line for a missing file or column, an empty text or
    label, and bytes that are not UTF-8.
    """

    def __init__(
        self,
        *,
        path: str,
        train: str = NONE,
        validation: str = NONE,
        test: str = NONE,
        format: Literal["auto", "txt", "csv", "tsv", "jsonl", "json", "conll", "conllu"] = "auto",
        columns: list[str] | Literal["none"] = NONE,
        text: str = "text",
        text_pair: str = NONE,
        label: str = "label",
        unit: Literal["paragraph", "line", "file"] = "paragraph",
    ) -> None:
        self.root = Path(path)
        self.format = format
        self.columns = None if columns == NONE else list(columns)
        self.text, self.text_pair, self.label, self.unit = text, text_pair, label, unit
        if not self.root.exists():
            raise ValueError(f"path: no such file or folder: {path}")
        named: dict[Split, str] = {"train": train, "validation": validation, "test": test}
        self.splits = {split for split, name in named.items() if name != NONE}
        self.files: dict[Path, Split]
        if self.splits:
            if "train" not in self.splits:
                raise ValueError("train: name its file too, since another split has one")
            self.files = {self._named(s, name): s for s, name in named.items() if s in self.splits}
        else:
            self.files = {file: "train" for file in self._listed()}
        for file in self.files:
            self._format(file)

    def versions(self) -> dict[str, str]:
        return {}

    def check(self, *, labelled: bool) -> None:
        """Reads each file as far as its first document or example."""
        for file in self.files:
            next(iter(self._examples(file) if labelled else self._documents(file)), None)

    def documents(self) -> Iterator[Document]:
        for file in self.files:
            yield from self._documents(file)

    def examples(self) -> Iterator[Labelled]:
        for file in self.files:
            yield from self._examples(file)

    def _documents(self, file: Path) -> Iterator[Document]:
        name = self._name(file)
        for line, record in self._records(file):
            text = self._cell(record, self._word_column(file), f"{file} line {line}")
            text = " ".join(text) if isinstance(text, list) else str(text)
            key = name if self.unit == "file" else text
            paragraphs = (" ".join(p.split()) for p in re.split(r"\n\s*\n", text))
            found = [s for paragraph in paragraphs for s in sentences(paragraph)]
            yield Document(f"{name}:{line}", self._split(file, key), found)

    def _examples(self, file: Path) -> Iterator[Labelled]:
        if self._format(file) == "txt":
            raise ValueError(f"{file}: a txt file has no labels; if it has, name its `format`")
        for line, record in self._records(file):
            place = f"{file} line {line}"
            text = self._cell(record, self._word_column(file), place)
            label = self._cell(record, self._tag_column(file), place)
            if isinstance(text, list):
                if not isinstance(label, list) or len(label) != len(text):
                    raise ValueError(f"{place}: {len(text)} words need as many tags")
                row = {"words": list(map(str, text)), "tags": list(map(str, label))}
            else:
                row = {"text": str(text), "label": str(label)}
                if self.text_pair != NONE:
                    row["text_pair"] = str(self._cell(record, self.text_pair, place))
            split = self._split(file, same_input(row))
            yield Labelled(f"{self._name(file)}:{line}", split, row)

    # Which files, in which format, of which split --------------------------------------------

    def _named(self, split: Split, name: str) -> Path:
        file = self.root / name
        if not file.is_file():
            there = [p.name for p in self.root.iterdir()] if self.root.is_dir() else []
            raise ValueError(f"{split}: no such file: {file}; {unknown(name, sorted(there))}")
        return file

    def _listed(self) -> list[Path]:
        if self.root.is_file():
            return [self.root]
        files = sorted(p for p in self.root.rglob("*") if p.is_file() and p.name[0] != ".")
        if self.format == "auto":
            files = [p for p in files if format_of(p) in FORMATS]
        if not files:
            raise ValueError(f"path: no {'/'.join(FORMATS)} file is in {self.root}")
        return files

    def _format(self, file: Path) -> str:
        if self.format != "auto":
            return self.format
        if format_of(file) not in FORMATS:
            raise ValueError(
                f"format: name it, since {file.name} does not end in one of {', '.join(FORMATS)}"
            )
        return format_of(file)

    def _name(self, file: Path) -> str:
        return file.name if file == self.root else file.relative_to(self.root).as_posix()

    def _split(self, file: Path, key: str) -> Split:
        split = self.files[file]
        drawn = split_of(key)
        return drawn if split == "train" and drawn not in self.splits else split

    # Records ---------------------------------------------------------------------------------

    def _word_column(self, file: Path) -> str:
        match self._format(file):
            case "txt":
                return "text"
            case "conllu" if self.text == "text":
                return "FORM"
        return self.text

    def _tag_column(self, file: Path) -> str:
        default = self._format(file) == "conllu" and self.label == "label"
        return "UPOS" if default else self.label

    def _cell(self, record: dict[str, Any], column: str, place: str) -> Any:
        if column not in record:
            raise ValueError(f"{place}: no column {column!r}; there are: {', '.join(record)}")
        value = record[column]
        if value is None or value == [] or (isinstance(value, str) and not value.strip()):
            raise ValueError(f"{place}: {column} is empty")
        return value

    def _records(self, file: Path) -> Iterator[Record]:
        format, columns = self._format(file), self.columns
        if format == "conll" and columns is None:
            columns = [self.text, self.label]
        with opened(file) as binary:
            yield from records(binary, format, name=str(file), columns=columns, unit=self.unit)


def records(
    file: Iterable[bytes],
    format: str,
    *,
    name: str,
    columns: list[str] | None = None,
    unit: str = "line",
) -> Iterator[Record]:
    """The records of a file in one of FORMATS, from its lines.

    Without ``columns``, the first line of a table names them, and those of a conll file are named
    "1", "2", ... Raises ValueError with the file's ``name`` and the line.
    """
    read: dict[str, Callable[[Lines], Iterator[Record]]] = {
        "txt": {"paragraph": _paragraphs, "line": _each_line, "file": _whole}[unit],
        "csv": lambda lines: _table(lines, columns, dialect="excel", strict=True),
        "tsv": lambda lines: _table(lines, columns, delimiter="\t", quoting=csv.QUOTE_NONE),
        "jsonl": _json_lines,
        "json": _json,
        "conll": lambda lines: _conll(lines, columns),
        "conllu": lambda lines: _conll(lines, CONLLU),
    }
    try:
        yield from read[format](_lines(file))
    except _Fault as fault:
        raise ValueError(f"{name} line {fault.line}: {fault}") from None


class _Fault(Exception):
    """What is wrong on a line of a file."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def format_of(file: Path) -> str:
    """What its name ends in, but for .gz: one of FORMATS or not."""
    return (file.with_suffix("") if file.suffix == ".gz" else file).suffix[1:].lower()


def opened(file: Path) -> Any:
    """The file for reading its bytes, unpacked if it is .gz."""
    return gzip.open(file) if file.suffix == ".gz" else file.open("rb")


def _lines(file: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        for number, line in enumerate(file, 1):
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise _Fault(number, f"byte {byte:#04x} is not UTF-8; convert the file") from None
    except (gzip.BadGzipFile, EOFError) as error:
        raise _Fault(number + 1, f"no whole gzip file: {error}") from None


def _paragraphs(lines: Lines) -> Iterator[Record]:
    begin, paragraph = 0, []
    for number, line in lines:
        if line.strip():
            begin = begin if paragraph else number
            paragraph.append(line)
        elif paragraph:
            yield begin, {"text": "".join(paragraph)}
            paragraph = []
    if paragraph:
        yield begin, {"text": "".join(paragraph)}


def _each_line(lines: Lines) -> Iterator[Record]:
    return ((number, {"text": line}) for number, line in lines if line.strip())


def _whole(lines: Lines) -> Iterator[Record]:
    text = "".join(line for _, line in lines)
    if text.strip():
        yield 1, {"text": text}


def _table(lines: Lines, columns: list[str] | None, **form: Any) -> Iterator[Record]:
    """Rows of a csv or tsv file; without ``columns`` the first one names them."""
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader((line for _, line in lines), **form)
    begin = 1
    try:
        for cells in reader:
            if columns is None:
                columns = cells
            elif cells and len(cells) != len(columns):
                raise _Fault(begin, _unequal(cells, columns))
            elif cells:
                yield begin, dict(zip(columns, cells, strict=True))
            begin = reader.line_num + 1
    except csv.Error as error:
        raise _Fault(begin, str(error)) from None
    if columns is None:
        raise _Fault(begin, "the file is empty; its first line must name the columns")


def _unequal(cells: list[str], columns: list[str]) -> str:
    return f"{len(cells)} cells, but {len(columns)} columns: {', '.join(columns)}"


def _json_lines(lines: Lines) -> Iterator[Record]:
    for number, line in lines:
        if line.strip():
            try:
                yield number, _mapping(json.loads(line), number)
            except json.JSONDecodeError as error:
                raise _Fault(number, f"not JSON: {error}") from None


def _json(lines: Lines) -> Iterator[Record]:
    """A list of objects; the line of each is not known, so its number in the list stands for it."""
    try:
        items = json.loads("".join(line for _, line in lines))
    except json.JSONDecodeError as error:
        raise _Fault(error.lineno, f"not JSON: {error.msg}") from None
    if not isinstance(items, list):
        raise _Fault(1, "must be a list of objects")
    yield from ((number, _mapping(item, number)) for number, item in enumerate(items, 1))


def _mapping(item: Any, line: int) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise _Fault(line, f"must be an object with the columns, not {item!r}")
    return item


def _conll(lines: Lines, columns: list[str] | None) -> Iterator[Record]:
    """Sentences between blank lines, a word on each line.

    Of CoNLL-U, comments, multiword tokens (``2-3``) and empty nodes (``8.1``) are no words.
    """
    begin, words = 0, []

    def record() -> Record:
        cells_of = zip(columns or [], zip(*words, strict=True), strict=True)
        return begin, {name: list(cells) for name, cells in cells_of}

    for number, line in lines:
        cells = line.split("\t" if "\t" in line else None)
        cells = [cell.strip() for cell in cells]
        if not any(cells):
            if words:
                yield record()
            words = []
        elif columns is CONLLU and (line[0] == "#" or not cells[0].isdecimal()):
            continue
        else:
            columns = columns or [str(i + 1) for i in range(len(cells))]
            if len(cells) != len(columns):
                raise _Fault(number, _unequal(cells, columns))
            begin = begin if words else number
            words.append(cells)
    if words:
        yield record()
