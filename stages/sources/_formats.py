"""Reads files into records: one per line, table row or question, with named columns."""

import csv
import gzip
import json
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple

from stages.core import parallel
from stages.core.artifacts import Json

FORMATS = ("txt", "csv", "tsv", "jsonl", "json", "conll", "conllu", "parquet")
Format = Literal[
    "auto", "txt", "csv", "tsv", "jsonl", "json", "conll", "conllu", "parquet", "parallel"
]
Unit = Literal["paragraph", "line", "file"]
Delimiter = Literal["auto", "comma", "semicolon", "tab", "bar"]  # of csv and tsv
DELIMITERS: dict[Delimiter, str] = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
CONLLU = ["ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC"]
_DOCUMENT_MARK = "-DOCSTART-"  # CoNLL-2003's mark of the beginning of a document
Lines = Iterable[tuple[int, str]]  # numbered from 1
_ROWS = 2**10  # rows of parquet to read at once; a row may be a whole book
_BUFFER_BYTES = 2**20
_NO_WHOLE_GZIP = gzip.BadGzipFile, EOFError, zlib.error


class Record(NamedTuple):
    """The cells of a row with its ``key``, which is unique in the file, and its ``place``, for
    errors."""

    key: str
    place: str
    cells: dict[str, Any]  # cells by column name


class _Fault(Exception):
    """A fault at a place in a file."""

    def __init__(self, place: str, message: str) -> None:
        super().__init__(f"{place}: {message}")


def format_of(file: Path) -> str:
    """Returns the suffix of the name, ``csv`` for ``a.csv`` and ``a.csv.gz``. It may be no valid
    format."""
    return (file.with_suffix("") if file.suffix == ".gz" else file).suffix[1:].lower()


def opened(file: Path) -> Any:
    """Opens the file for reading bytes, decompressed if it is .gz."""
    return gzip.open(file) if file.suffix == ".gz" else file.open("rb")


def sides(stem: Path, languages: list[str]) -> list[Path]:
    """Returns the files of parallel text: ``train.en`` and ``train.de`` for ``train``, or the same
    with ``.gz``. Raises ValueError if one is missing."""
    files = []
    for language in languages:
        plain = Path(f"{stem}.{language}")
        candidates = [file for file in (plain, Path(f"{plain}.gz")) if file.is_file()]
        if not candidates:
            raise ValueError(f"no such file: {plain}, nor {plain}.gz")
        files.append(candidates[0])
    return files


def read(
    file: Path,
    format: str,
    *,
    columns: list[str] | None,
    unit: Unit,
    languages: list[str],
    delimiter: Delimiter = "auto",
) -> Iterator[Record]:
    """Yields the records of a file in order. If the format is parallel, ``file`` is the stem of the
    files and ``languages`` are their endings. The other parameters are those of ``records``."""
    if format == "parallel":
        yield from _parallel(sides(file, languages), languages)
    elif format == "parquet":
        yield from _parquet(file)
    else:
        with opened(file) as binary:
            yield from records(
                binary, format, name=str(file), columns=columns, unit=unit, delimiter=delimiter
            )


def records(
    file: Iterable[bytes],
    format: str,
    *,
    name: str,
    columns: list[str] | None = None,
    unit: Unit = "line",
    delimiter: Delimiter = "auto",
    first: int = 1,
) -> Iterator[Record]:
    """Yields the records of a text file from its lines; ``first`` is the number of the first line.

    ``columns`` names the columns of csv, tsv and conll files without a header; ``unit`` applies to
    txt; ``delimiter``, for csv and tsv, is that of the format if it is auto. Raises ValueError with
    the file's ``name`` and the place.
    """
    parse: dict[str, Callable[[Lines], Iterator[Record]]] = {
        "txt": {"paragraph": _paragraphs, "line": _each_line, "file": _whole}[unit],
        "csv": lambda lines: _table(
            lines, columns, delimiter=DELIMITERS.get(delimiter, ","), strict=True
        ),
        "tsv": lambda lines: _table(
            lines, columns, delimiter=DELIMITERS.get(delimiter, "\t"), quoting=csv.QUOTE_NONE
        ),
        "jsonl": _json_lines,
        "json": _json,
        "conll": lambda lines: _conll(lines, columns),
        "conllu": lambda lines: _conll(lines, CONLLU),
    }
    try:
        yield from parse[format](_lines(file, first))
    except _Fault as fault:
        raise ValueError(f"{name} {fault}") from None


def can_be_cut(format: str, unit: Unit) -> bool:
    """Returns whether records can be read without the records before them, as ``line_groups``
    requires."""
    return format in ("jsonl", "conll", "conllu") or (format == "txt" and unit != "file")


def line_groups(
    file: Iterable[bytes], format: str, *, name: str, unit: Unit
) -> Iterator[tuple[int, list[bytes]]]:
    """Cuts the lines of a file between records; yields the number of each group's first line, and
    its lines. Raises ValueError with the file's ``name``."""
    ends_at_blank = format != "jsonl" and (format != "txt" or unit == "paragraph")
    lines: list[bytes] = []
    first, number, num_bytes = 1, 0, 0
    try:
        for line in file:
            lines.append(line)
            number += 1
            num_bytes += len(line)
            if num_bytes >= parallel.PART_BYTES and not (ends_at_blank and line.strip()):
                del line  # which may be a whole book
                yield first, lines
                lines, first, num_bytes = [], number + 1, 0
    except _NO_WHOLE_GZIP as error:
        raise ValueError(f"{name} {_cut_off(number + 1, error)}") from None
    if lines:
        yield first, lines


def _lines(file: Iterable[bytes], first: int = 1) -> Iterator[tuple[int, str]]:
    number = first - 1
    try:
        for line in file:
            number += 1
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            del line  # which may be a whole book
            yield number, text
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise _Fault(f"line {number}", f"byte {byte:#04x} is not UTF-8; convert the file") from None
    except _NO_WHOLE_GZIP as error:
        raise _cut_off(number + 1, error) from None


def _cut_off(number: int, error: Exception) -> _Fault:
    return _Fault(f"line {number}", f"no whole gzip file: {error}")


def _on_line(number: int, cells: Json) -> Record:
    return Record(str(number), f"line {number}", cells)


# Text ----------------------------------------------------------------------------------------


def _paragraphs(lines: Lines) -> Iterator[Record]:
    begin, paragraph = 0, []
    for number, line in lines:
        if line.strip():
            begin = begin if paragraph else number
            paragraph.append(line)
        elif paragraph:
            yield _on_line(begin, {"text": "".join(paragraph)})
            paragraph = []
    if paragraph:
        yield _on_line(begin, {"text": "".join(paragraph)})


def _each_line(lines: Lines) -> Iterator[Record]:
    return (_on_line(number, {"text": line}) for number, line in lines if line.strip())


def _whole(lines: Lines) -> Iterator[Record]:
    text = "".join(line for _, line in lines)
    if text.strip():
        yield _on_line(1, {"text": text})


def _parallel(files: list[Path], languages: list[str]) -> Iterator[Record]:
    """Yields line n of all files as one record."""
    number = 0
    for number, texts in enumerate(zip_longest(*map(_texts, files)), 1):
        if None in texts:
            (short,) = (file for file, text in zip(files, texts, strict=True) if text is None)
            (long,) = (file for file in files if file != short)
            raise ValueError(
                f"{short} has {number - 1} lines, but {long} has more; line n of one must be the "
                "translation of line n of the other"
            )
        yield _on_line(number, dict(zip(languages, texts, strict=True)))


def _texts(file: Path) -> Iterator[str]:
    """Yields each line, empty lines included."""
    with opened(file) as binary:
        try:
            for _, line in _lines(binary):
                yield line.strip()
        except _Fault as fault:
            raise ValueError(f"{file} {fault}") from None


# Tables --------------------------------------------------------------------------------------


def _table(lines: Lines, columns: list[str] | None, **form: Any) -> Iterator[Record]:
    """Yields the rows of a csv or tsv file; without ``columns`` the first row names them."""
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader((line for _, line in lines), **form)
    begin = 1
    try:
        for cells in reader:
            if columns is None:
                columns = _distinct(cells)
                if len(columns) == 1 and (odd := [c for c in ";\t|" if c in columns[0]]):
                    raise _Fault(
                        f"line {begin}",
                        f"one column, {columns[0]!r}; a csv file has commas, not {odd[0]!r}, "
                        "between its columns, and a tsv file tabs, unless `delimiter` sets another",
                    )
            elif cells and len(cells) != len(columns):
                raise _Fault(f"line {begin}", _unequal(cells, columns))
            elif cells:
                yield _on_line(begin, dict(zip(columns, cells, strict=True)))
            begin = reader.line_num + 1
    except csv.Error as error:
        raise _Fault(f"line {begin}", str(error)) from None
    if columns is None:
        raise _Fault(f"line {begin}", "the file is empty; its first line must name the columns")


def _distinct(columns: list[str]) -> list[str]:
    for column in columns:
        if columns.count(column) > 1:
            raise _Fault("line 1", f"two columns have the name {column!r}")
    return columns


def _unequal(cells: list[str], columns: list[str]) -> str:
    return f"{len(cells)} cells, but {len(columns)} columns: {', '.join(columns)}"


def _parquet(file: Path) -> Iterator[Record]:
    import pyarrow.parquet

    try:
        opened = pyarrow.parquet.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        batches = opened.iter_batches(batch_size=_ROWS)
        rows = chain.from_iterable(batch.to_pylist() for batch in batches)
        for number, cells in enumerate(rows, 1):
            yield Record(str(number), f"row {number}", cells)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{file}: no whole parquet file: {' '.join(str(error).split())}") from None


# JSON ----------------------------------------------------------------------------------------


def _json_lines(lines: Lines) -> Iterator[Record]:
    for number, line in lines:
        if line.strip():
            try:
                cells = json.loads(line)
            except json.JSONDecodeError as error:
                raise _Fault(f"line {number}", f"not JSON: {error}") from None
            yield _on_line(number, _object(cells, f"line {number}"))


def _json(lines: Lines) -> Iterator[Record]:
    """Yields the objects of a list, or the questions of a file in SQuAD's form. Their lines are
    unknown."""
    try:
        whole = json.loads("".join(line for _, line in lines))
    except json.JSONDecodeError as error:
        raise _Fault(f"line {error.lineno}", f"not JSON: {error.msg}") from None
    if isinstance(whole, dict) and isinstance(whole.get("data"), list):
        yield from _squad(whole["data"])
    elif isinstance(whole, list):
        for number, cells in enumerate(whole, 1):
            place = f"object {number}"
            yield Record(str(number), place, _object(cells, place))
    else:
        raise _Fault("line 1", 'must be a list of objects, or {"data": [...]} as SQuAD has it')


def _squad(articles: list[Any]) -> Iterator[Record]:
    """Yields the questions at ``articles[].paragraphs[].qas[]`` (Rajpurkar et al. 2016;
    ``is_impossible`` 2018)."""
    number = 0
    for a, article in enumerate(articles):
        for p, paragraph in enumerate(_field(article, "paragraphs", list, f"data[{a}]")):
            at = f"data[{a}].paragraphs[{p}]"
            context = _field(paragraph, "context", str, at)
            for q, entry in enumerate(_field(paragraph, "qas", list, at)):
                number += 1
                key = str(_object(entry, f"{at}.qas[{q}]").get("id", number))
                place = f"question {key}"
                cells = {
                    "question": _field(entry, "question", str, place),
                    "context": context,
                    "answers": [],
                    "title": article.get("title"),
                }
                if not entry.get("is_impossible"):
                    cells["answers"] = _field(entry, "answers", list, place)
                yield Record(key, place, cells)


def _field(item: Any, name: str, kind: type, place: str) -> Any:
    value = _object(item, place).get(name)
    if not isinstance(value, kind):
        expected = {list: "a list", str: "a text"}[kind]
        raise _Fault(place, f"{name} must be {expected}, as in SQuAD's files")
    return value


def _object(item: Any, place: str) -> Json:
    if not isinstance(item, dict):
        raise _Fault(place, f"must be an object with the columns, not {item!r}")
    return item


# CoNLL ---------------------------------------------------------------------------------------


def _conll(lines: Lines, columns: list[str] | None) -> Iterator[Record]:
    """Yields sentences between blank lines, with a word on each line; without ``columns`` the
    columns are 1, 2, ...

    In CoNLL-U, comments, multiword tokens (``2-3``) and empty nodes (``8.1``) are skipped.
    """
    begin, words = 0, []

    def record() -> Record:
        cells = zip(*words, strict=True)
        return _on_line(begin, {n: list(c) for n, c in zip(columns or [], cells, strict=True)})

    for number, line in lines:
        cells = line.split("\t" if "\t" in line else None)
        cells = [cell.strip() for cell in cells]
        if not any(cells):
            if words:
                yield record()
            words = []
        elif cells[0] == _DOCUMENT_MARK or (
            columns is CONLLU and (line[0] == "#" or not cells[0].isdecimal())
        ):
            continue
        else:
            columns = columns or [str(i) for i in range(1, len(cells) + 1)]
            if len(cells) != len(columns):
                raise _Fault(f"line {number}", _unequal(cells, columns))
            begin = begin if words else number
            words.append(cells)
    if words:
        yield record()
