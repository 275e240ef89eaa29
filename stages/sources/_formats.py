"""Reads files into records: one per line, table row or question, with named columns."""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import chain, groupby, zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple

from stages.core.artifacts import Json
from stages.core.text_files import (
    Lines,
    is_comment,
    numbered_lines,
    opened,
    repeats_header,
    sep_line,
    text_lines,
)

FORMATS = ("txt", "csv", "tsv", "jsonl", "json", "conll", "conllu", "parquet")
Format = Literal[
    "auto", "txt", "csv", "tsv", "jsonl", "json", "conll", "conllu", "parquet", "parallel"
]
Unit = Literal["paragraph", "line", "file"]
Delimiter = Literal["auto", "comma", "semicolon", "tab", "bar"]  # of csv and tsv
DELIMITERS: dict[Delimiter, str] = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
CONLLU = ["ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC"]
MOST_CELL = 2**26  # characters


class Record(NamedTuple):
    """The cells of a row by the names of their columns, with its ``key``, which is unique in the
    file, and its ``place``, for errors."""

    key: str
    place: str
    cells: dict[str, Any]


def format_of(file: Path) -> str:
    """Returns the suffix of a file's name, which may be no valid format: ``csv`` for a.csv.gz."""
    return (file.with_suffix("") if file.suffix == ".gz" else file).suffix[1:].lower()


def sides(stem: Path, languages: Sequence[str]) -> list[Path]:
    """Returns the files of parallel text: ``train.en`` and ``train.de`` for the stem ``train``,
    each perhaps with ``.gz``. Raises ValueError if one is missing."""
    files = []
    for plain in (Path(f"{stem}.{language}") for language in languages):
        packed = Path(f"{plain}.gz")
        if not plain.is_file() and not packed.is_file():
            raise ValueError(f"no such file: {plain}, nor {packed}")
        files.append(plain if plain.is_file() else packed)
    return files


def read(
    file: Path, format: str, *, languages: Sequence[str] = (), **settings: Any
) -> Iterator[Record]:
    """Yields the records of a file in order; ``settings`` are those of ``records``. If the format
    is parallel, ``file`` is the stem of the files and ``languages`` are their endings. Raises
    ValueError with the file and the place."""
    if format == "parallel":
        yield from _parallel(sides(file, languages), languages)
    elif format == "parquet":
        yield from _parquet(file)
    else:
        with opened(file) as binary:
            yield from records(binary, format, name=str(file), **settings)


def records(
    file: Iterable[bytes],
    format: str,
    *,
    name: str,
    columns: list[str] | None = None,
    unit: Unit = "line",
    delimiter: Delimiter = "auto",
) -> Iterator[Record]:
    """Yields the records of the text file ``name`` from its lines. ``columns`` names the columns of
    csv, tsv and conll files without a header; ``unit`` applies to txt. Raises the errors of
    ``read``."""
    lines = numbered_lines(file, name)
    match format:
        case "txt":
            return _texts(lines, unit)
        case "csv" | "tsv":
            return _table(lines, columns, delimiter, name, quoted=format == "csv")
        case "jsonl":
            return _json_lines(lines, name)
        case "json":
            return _json(lines, name)
        case _:
            return _conll(lines, CONLLU if format == "conllu" else columns, name)


def _numbered(unit: str, number: int | str, cells: Json) -> Record:
    return Record(str(number), f"{unit} {number}", cells)


def _texts(lines: Lines, unit: Unit) -> Iterator[Record]:
    def group_of(line: tuple[int, str]) -> int | bool:
        return line[0] if unit == "line" else unit == "paragraph" and bool(line[1].strip())

    for _, group in groupby(lines, group_of):
        numbers, texts = zip(*group, strict=True)
        if (text := "".join(texts)).strip():
            yield _numbered("line", numbers[0], {"text": text})


def _parallel(files: list[Path], languages: Sequence[str]) -> Iterator[Record]:
    """Yields line n of all files as one record."""
    for number, texts in enumerate(zip_longest(*map(text_lines, files)), 1):
        if None in texts:
            short, long = sorted(files, key=lambda file: texts[files.index(file)] is not None)
            raise ValueError(
                f"{short} has {number - 1} lines, but {long} has more; line n of one must be the "
                "translation of line n of the other"
            )
        yield _numbered("line", number, dict(zip(languages, map(str.strip, texts), strict=True)))


def _table(
    lines: Lines, columns: list[str] | None, delimiter: Delimiter, name: str, *, quoted: bool
) -> Iterator[Record]:
    """Yields the rows of a csv or tsv file; without ``columns`` the first row names the columns.

    Excel's first line ``sep=;`` gives the delimiter if the setting does not. A row that repeats the
    header, as in joined files, is left out, and so are rows of empty cells at the end, as
    spreadsheets write them. A row may have more cells than columns if these are empty.
    """
    csv.field_size_limit(MOST_CELL)
    first, texts = sep_line(text for _, text in lines)
    skipped = int(first is not None)
    sign = DELIMITERS.get(delimiter, first or ("," if quoted else "\t"))
    form: Json = {"strict": True} if quoted else {"quoting": csv.QUOTE_NONE}
    reader = csv.reader(texts, delimiter=sign, **form)
    begin, header = 1 + skipped, list[str]()
    empty: list[Record] = []  # rows of empty cells that may be the last ones
    try:
        for cells in reader:
            place = f"{name} line {begin}"
            if columns is None and cells:
                columns, header = _names(cells, place), cells
            elif columns and cells and not repeats_header(cells, header or columns):
                if len(cells) > 1 and header != cells and sorted(cells) == sorted(header):
                    raise ValueError(
                        f"{place}: has the names of the columns in another order "
                        f"({', '.join(cells)}): join files by their columns (pandas.concat)"
                    )
                if len(cells) < len(columns) or any(map(str.strip, cells[len(columns) :])):
                    raise ValueError(f"{place}: {_unequal(cells, columns)}")
                empty.append(_numbered("line", begin, dict(zip(columns, cells, strict=False))))
                if any(map(str.strip, cells)):
                    yield from empty
                    empty.clear()
            begin = reader.line_num + 1 + skipped
    except csv.Error as error:
        never = "; a quotation mark of this row never closes" * ("end of data" in str(error))
        raise ValueError(f"{name} line {begin}: no row of csv: {error}{never}") from None
    if columns is None:
        raise ValueError(f"{name} line 1: the file is empty; its first line must name the columns")


def _unequal(cells: list[str], columns: list[str]) -> str:
    return f"{len(cells)} cells, but {len(columns)} columns: {', '.join(columns)}"


def _names(cells: list[str], place: str) -> list[str]:
    """Returns the names of the columns; one without a name is ``Unnamed: 0``, as in pandas."""
    names = [cell if cell.strip() else f"Unnamed: {i}" for i, cell in enumerate(cells)]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(
            f"{place}: two columns have the name {repeated[0]!r}; if this line has no names of "
            "columns, give them: `columns: [...]`"
        )
    if len(names) == 1 and (odd := [sign for sign in ";\t|" if sign in names[0]]):
        raise ValueError(
            f"{place}: one column, {names[0]!r}; a csv file has commas, not {odd[0]!r}, between "
            "its columns, and a tsv file tabs, unless `delimiter` sets another"
        )
    return names


def _parquet(file: Path) -> Iterator[Record]:
    import pyarrow.parquet

    try:
        batches = pyarrow.parquet.ParquetFile(file).iter_batches(batch_size=1024)
        rows = (row for batch in batches for row in batch.to_pylist())
        for number, cells in enumerate(rows, 1):
            yield _numbered("row", number, {name: _plain(cell) for name, cell in cells.items()})
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{file}: no whole parquet file: {' '.join(str(error).split())}") from None


def _plain(cell: Any) -> Any:
    """Returns a cell of parquet, with a decimal as float, and bytes as text if they are UTF-8."""
    if isinstance(cell, bytes):
        with suppress(UnicodeDecodeError):
            return cell.decode()
    return float(cell) if isinstance(cell, Decimal) else cell


def _unique(pairs: list[tuple[str, Any]]) -> Json:
    """Returns an object of JSON; Python would keep the last of several values of a key."""
    keys = [key for key, _ in pairs]
    if repeated := [key for key in keys if keys.count(key) > 1]:
        raise ValueError(f"the key {repeated[0]!r} is there more than once; keep one")
    return dict(pairs)


def _decoded(text: str, name: str, line: int | None = None) -> Any:
    """Returns the value of a JSON text, which is a ``line`` of a file or the whole file. Raises
    ValueError, with the place, for other texts, repeated keys, and half a surrogate pair."""
    try:
        value = json.loads(text, object_pairs_hook=_unique)
        if r"\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeEncodeError as error:
        problem = f"{ascii(error.object[error.start])} is half a character; delete it"
    except json.JSONDecodeError as error:
        line, problem = (
            line or error.lineno,
            f"not JSON: {error.msg} (one list, or objects on lines)",
        )
    except ValueError as error:
        problem = str(error)
    raise ValueError(f"{name}{f' line {line}' if line else ''}: {problem}")


def _objects(items: Iterable[tuple[int, Any]], name: str, unit: str) -> Iterator[Record]:
    for number, item in items:
        if not isinstance(item, dict):
            place = f"{name} {unit} {number}"
            raise ValueError(f"{place}: must be an object with the columns, not {item!r}")
        yield _numbered(unit, number, item)


def _json_lines(lines: Iterable[tuple[int, str]], name: str) -> Iterator[Record]:
    items = ((n, _decoded(line, name, n)) for n, line in lines if line.strip())
    return _objects(items, name, "line")


def _json(lines: Lines, name: str) -> Iterator[Record]:
    """Returns the objects of one list, the objects on lines, as in jsonl, or the questions of a
    file in SQuAD's form, which may also be a list of its articles or contexts."""
    numbered = [*lines]
    written = [line.strip() for _, line in numbered if line.strip()]
    if len(written) > 1 and all(line[0] + line[-1] == "{}" for line in written):
        return _json_lines(numbered, name)
    rows = _decoded("".join(line for _, line in numbered), name)
    if isinstance(rows, dict) and isinstance(rows.get("data"), list):
        rows = rows["data"]
    if not isinstance(rows, list):
        raise ValueError(f'{name} line 1: must be a list of objects, or {{"data": [...]}}')
    first = rows[0] if rows and isinstance(rows[0], dict) else {}
    if "qas" in first or "'qas'" in str(first.get("paragraphs")):
        return _squad([{"paragraphs": rows}] if "qas" in first else rows, name)
    return _objects(enumerate(rows, 1), name, "object")


def _squad(articles: list[Json], name: str) -> Iterator[Record]:
    """Yields the questions at ``articles[].paragraphs[].qas[]`` (Rajpurkar et al. 2016;
    with ``is_impossible``: 2018)."""
    number = 0
    try:
        for article in articles:
            for paragraph in article["paragraphs"]:
                for entry in paragraph["qas"]:
                    number += 1
                    cells = {"question": entry["question"], "context": paragraph["context"]}
                    cells |= {"title": article.get("title"), "answers": []}
                    if not entry.get("is_impossible"):
                        cells["answers"] = entry["answers"]
                    yield _numbered("question", entry.get("id", number), cells)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{name} question {number}: lacks {error}, or has another form than SQuAD's files"
        ) from None


def _conll(lines: Lines, columns: list[str] | None, name: str) -> Iterator[Record]:
    """Yields sentences between blank lines, with a word on each line. Without ``columns`` the
    columns are called 1, 2, ... Comments, CoNLL-2003's -DOCSTART- and CoNLL-U's multiword tokens
    (``2-3``) and empty nodes (``8.1``) are skipped."""
    begin, words = 0, list[list[str]]()
    for number, text in chain(lines, [(0, "")]):
        # Other blanks, such as a no-break space, are part of a word.
        line = text.strip("\r\n")
        cells = line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))
        cells = [cell.strip(" ") for cell in cells]
        if not any(cells):
            if words:
                named = zip(columns or (), zip(*words, strict=True), strict=True)
                yield _numbered("line", begin, {column: [*of] for column, of in named})
            words = []
        elif not (
            cells[0] == "-DOCSTART-"
            or (columns is CONLLU and not cells[0].isdecimal())
            or (not words and is_comment(line, cells, columns))
        ):
            columns = columns or [str(i) for i in range(1, len(cells) + 1)]
            while len(cells) > len(columns) and not cells[-1]:  # tabs at the end of the line
                cells.pop()
            if len(cells) != len(columns):
                raise ValueError(f"{name} line {number}: {_unequal(cells, columns)}")
            begin = begin if words else number
            words.append(cells)
