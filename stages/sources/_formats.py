"""Reads files into records: one per line, table row or question, with named columns."""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple

from stages.core import parallel
from stages.core.artifacts import Json
from stages.core.text_files import (
    NO_WHOLE_GZIP,
    Fault,
    Lines,
    advice_on,
    bounded_lines,
    cut_off,
    error_of,
    is_comment,
    numbered_lines,
    opened,
    repeats_header,
    sep_line,
    text_lines,
)
from stages.kinds._cells import short

FORMATS = ("txt", "csv", "tsv", "jsonl", "json", "conll", "conllu", "parquet")
Format = Literal[
    "auto", "txt", "csv", "tsv", "jsonl", "json", "conll", "conllu", "parquet", "parallel"
]
Unit = Literal["paragraph", "line", "file"]
Delimiter = Literal["auto", "comma", "semicolon", "tab", "bar"]  # of csv and tsv
DELIMITERS: dict[Delimiter, str] = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
CONLLU = ["ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC"]
_DOCUMENT_MARK = "-DOCSTART-"  # CoNLL-2003's mark of the beginning of a document
_ROWS = 2**10  # rows of parquet to read at once; a row may be a whole book
_BUFFER_BYTES = 2**20
MOST_ROW = 2**26  # characters of a row of a table; the csv module needs several times as many bytes
_MOST_DEPTH = 100  # of JSON


class Record(NamedTuple):
    """The cells of a row with its ``key``, which is unique in the file, and its ``place``, for
    errors."""

    key: str
    place: str
    cells: dict[str, Any]  # cells by column name


def format_of(file: Path) -> str:
    """Returns the suffix of a file's name (``csv`` for ``a.csv`` and ``a.csv.gz``), which may be no
    valid format."""
    return (file.with_suffix("") if file.suffix == ".gz" else file).suffix[1:].lower()


def sides(stem: Path, languages: list[str]) -> list[Path]:
    """Returns the files of parallel text: ``train.en`` and ``train.de`` for the stem ``train``,
    each perhaps with ``.gz``. Raises ValueError if one is missing."""
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
    txt; ``delimiter`` applies to csv and tsv, where auto is the comma or the tab. Raises ValueError
    with the file's ``name`` and the place.
    """
    parse: dict[str, Callable[[Lines], Iterator[Record]]] = {
        "txt": {"paragraph": _paragraphs, "line": _each_line, "file": _whole}[unit],
        "csv": lambda lines: _table(lines, columns, delimiter, ",", strict=True),
        "tsv": lambda lines: _table(lines, columns, delimiter, "\t", quoting=csv.QUOTE_NONE),
        "jsonl": _json_lines,
        "json": _json,
        "conll": lambda lines: _conll(lines, columns),
        "conllu": lambda lines: _conll(lines, CONLLU),
    }
    try:
        yield from parse[format](numbered_lines(file, first))
    except Fault as fault:
        raise error_of(fault, name) from None


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
        for line in bounded_lines(file):
            lines.append(line)
            number += 1
            num_bytes += len(line)
            if num_bytes >= parallel.PART_BYTES and not (ends_at_blank and line.strip()):
                del line  # a line may be a whole book
                yield first, lines
                lines, first, num_bytes = [], number + 1, 0
    except NO_WHOLE_GZIP as error:
        raise ValueError(f"{name} {cut_off(number + 1, error)}") from None
    except Fault as fault:
        raise error_of(fault, name) from None
    if lines:
        yield first, lines


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
    for number, texts in enumerate(zip_longest(*map(text_lines, files)), 1):
        if None in texts:
            (short,) = (file for file, text in zip(files, texts, strict=True) if text is None)
            (long,) = (file for file in files if file != short)
            raise ValueError(
                f"{short} has {number - 1} lines, but {long} has more; line n of one must be the "
                "translation of line n of the other"
            )
        yield _on_line(number, dict(zip(languages, map(str.strip, texts), strict=True)))


# Tables --------------------------------------------------------------------------------------


def _table(
    lines: Lines, columns: list[str] | None, delimiter: Delimiter, usual: str, **form: Any
) -> Iterator[Record]:
    """Yields the rows of a csv or tsv file; without ``columns`` the first row names the columns.

    Excel's first line ``sep=;`` gives the delimiter if the setting does not. A row that repeats
    the header, as in joined files, is left out, and so are rows of empty cells at the end, as
    spreadsheets write them. A row may have more cells than columns if these are empty.
    """
    csv.field_size_limit(MOST_ROW)
    raw: list[str] = []  # the lines of the row
    first, texts = sep_line(text for _, text in lines)
    sign = DELIMITERS.get(delimiter, first or usual)
    reader = csv.reader(_of_row(texts, raw), delimiter=sign, **form)
    skipped = int(first is not None)
    begin = 1 + skipped
    header: list[str] = []
    empty: list[Record] = []  # rows of empty cells that may be the last ones
    try:
        for cells in reader:
            if begin < 4 and _is_rule(cells):
                raise Fault(
                    f"line {begin}",
                    "is a line of a printed table (Markdown, psql, MySQL); export csv instead "
                    "(psql --csv), or delete such lines",
                )
            if columns is None:
                columns, header = (_names(cells, begin), cells) if cells else (None, [])
            elif cells and not repeats_header(cells, header or columns):
                if len(cells) > 1 and header != cells and sorted(cells) == sorted(header):
                    raise Fault(
                        f"line {begin}",
                        f"has the names of the columns in another order ({', '.join(cells)}): two "
                        "files were joined; join them by their columns (pandas.concat)",
                    )
                if len(cells) < len(columns) or any(map(str.strip, cells[len(columns) :])):
                    advice = advice_on("".join(raw))
                    raise Fault(f"line {begin}", f"{_unequal(cells, columns)}{advice}")
                empty.append(_on_line(begin, dict(zip(columns, cells, strict=False))))
                if any(map(str.strip, cells)):
                    yield from empty
                    empty.clear()
            begin = reader.line_num + 1 + skipped
            raw.clear()
    except csv.Error as error:
        advice = advice_on("".join(raw)).removeprefix("; ")
        if "end of data" in str(error):
            advice = advice or "a quotation mark of this row never closes; delete it or double it"
        raise Fault(f"line {begin}", advice or str(error)) from None
    if columns is None:
        raise Fault(f"line {begin}", "the file is empty; its first line must name the columns")


def _of_row(texts: Iterable[str], raw: list[str]) -> Iterator[str]:
    """Yields the lines and adds them to ``raw``, which the caller empties after each row. Raises
    csv.Error for a row of more than ``MOST_ROW`` characters."""
    size = 0
    for text in texts:
        size = len(text) + (size if raw else 0)
        if size > MOST_ROW:
            number = f"{MOST_ROW / 2**20:.0f} million"
            raise csv.Error(
                f"the row has more than {number} characters; perhaps a quotation mark never closes"
            )
        raw.append(text)
        yield text


def _is_rule(cells: list[str]) -> bool:
    """Whether a row is a line such as ``|---|---|`` of a printed table."""
    return any("---" in cell for cell in cells) and not "".join(cells).strip("-+:=| ")


def _names(cells: list[str], line: int) -> list[str]:
    """Returns the names of the columns. A column without a name gets the one that pandas gives it,
    ``Unnamed: 0``. Raises Fault for a repeated name or a wrong delimiter."""
    names = [cell if cell.strip() else f"Unnamed: {i}" for i, cell in enumerate(cells)]
    for name in names:
        if names.count(name) > 1:
            hint = "if this line has no names of columns, give them: `columns: [...]`"
            raise Fault(f"line {line}", f"two columns have the name {name!r}; {hint}")
    if len(names) == 1 and (odd := [sign for sign in ";\t|" if sign in names[0]]):
        raise Fault(
            f"line {line}",
            f"one column, {names[0]!r}; a csv file has commas, not {odd[0]!r}, between its "
            "columns, and a tsv file tabs, unless `delimiter` sets another",
        )
    return names


def _unequal(cells: list[str], columns: list[str]) -> str:
    last = "; the last one is empty" if cells and not cells[-1] else ""
    if len(cells) == len(columns) + 1 and cells[0] == "1":
        last = "; the first may be R's name of the row: row.names = FALSE leaves it out"
    return f"{len(cells)} cells, but {len(columns)} columns: {', '.join(columns)}{last}"


def _parquet(file: Path) -> Iterator[Record]:
    import pyarrow.parquet

    try:
        opened = pyarrow.parquet.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        batches = opened.iter_batches(batch_size=_ROWS)
        rows = chain.from_iterable(batch.to_pylist() for batch in batches)
        for number, cells in enumerate(rows, 1):
            plain = {name: _plain(cell) for name, cell in cells.items()}
            yield Record(str(number), f"row {number}", plain)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{file}: no whole parquet file: {' '.join(str(error).split())}") from None


def _plain(cell: Any) -> Any:
    """Returns a cell of parquet, with a decimal as float, and bytes as text if they are UTF-8."""
    if isinstance(cell, bytes):
        try:
            return cell.decode()
        except UnicodeDecodeError:
            return cell
    return float(cell) if isinstance(cell, Decimal) else cell


# JSON ----------------------------------------------------------------------------------------


def _without_repeats(pairs: list[tuple[str, Any]]) -> Json:
    """Returns the JSON object of these pairs. Raises KeyError for a repeated key, of which Python
    would keep the last value."""
    cells = dict(pairs)
    if len(cells) < len(pairs):
        keys = [key for key, _ in pairs]
        key = next(key for key in keys if keys.count(key) > 1)
        values = " and ".join(short(value) for name, value in pairs if name == key)
        raise KeyError(f"the key {key!r} is there more than once, with {values}; keep one")
    return cells


_JSON = json.JSONDecoder(object_pairs_hook=_without_repeats)


def _decoded(text: str, place: str) -> Any:
    """Returns the value of a JSON text. Raises Fault for a value that is nested too deeply for the
    recursive functions that check and show it, and for a number that is too long for Python."""
    deep = Fault(place, f"is nested more than {_MOST_DEPTH} deep; make it flatter")
    try:
        value = _JSON.decode(text)
    except RecursionError:
        raise deep from None
    except json.JSONDecodeError:
        raise
    except ValueError as error:  # a number with thousands of digits
        raise Fault(place, str(error).partition(";")[0]) from None
    if text.count("[") + text.count("{") > _MOST_DEPTH:  # most rows have fewer brackets
        level = [value]
        for _ in range(_MOST_DEPTH):
            inner = (each.values() if isinstance(each, dict) else each for each in level)
            level = [each for each in chain.from_iterable(inner) if isinstance(each, dict | list)]
        if level:
            raise deep
    return value


def _json_lines(lines: Lines) -> Iterator[Record]:
    for number, line in lines:
        if line.strip():
            place = f"line {number}"
            try:
                cells = _decoded(line, place)
            except KeyError as error:
                raise Fault(place, error.args[0]) from None
            except json.JSONDecodeError as error:
                whole = "; is it one JSON text? `format: json`" if line.strip() in "[{" else ""
                advice = advice_on(line.replace("\\", ""))
                raise Fault(place, f"not JSON: {error}{whole}{advice}") from None
            yield _on_line(number, _encodable(_object(cells, place), line, place))


def _json(lines: Lines) -> Iterator[Record]:
    """Yields the records of a json file: the objects of one list (errors give their number, since
    their lines are unknown), the objects on its lines, as in jsonl, or the questions of a file in
    SQuAD's form, which may also be a list of SQuAD's articles or contexts."""
    numbered = [*lines]
    try:
        whole = _decoded("".join(line for _, line in numbered), "in the whole text")
    except KeyError as error:
        raise Fault("in an object", error.args[0]) from None
    except json.JSONDecodeError as error:
        has_lines = sum(bool(line.strip()) for _, line in numbered) > 1
        line = numbered[0][1].strip()
        if error.msg == "Extra data" and line[:1] + line[-1:] == "{}" and has_lines:
            yield from _json_lines(numbered)
            return
        several = "; objects must be in one list, or each on a line of its own"
        advice = several if error.msg == "Extra data" else ""
        raise Fault(f"line {error.lineno}", f"not JSON: {error.msg}{advice}") from None
    text = "".join(line for _, line in numbered if "\\ud" in line.lower())
    if isinstance(whole, dict) and isinstance(rows := whole.get("data"), list):
        names = {name for row in rows if isinstance(row, dict) for name in row}
        if "paragraphs" in names or names <= {"title"}:
            yield from _squad(_encodable(whole, text, "data")["data"])
            return
        whole = rows
    if isinstance(whole, list):
        first: Json = whole[0] if whole and isinstance(whole[0], dict) else {}
        articles = [{"paragraphs": whole}] if "qas" in first else whole
        if "qas" in first or "'qas'" in str(first.get("paragraphs")):
            yield from _squad(articles)
            return
        for number, cells in enumerate(whole, 1):
            place = f"object {number}"
            yield Record(str(number), place, _encodable(_object(cells, place), text, place))
    else:
        items = whole.items() if isinstance(whole, dict) else ()
        lists = [key for key, value in items if isinstance(value, list)]
        inner = f"; jq .{lists[0]} FILE > NEW keeps the list in it" if len(lists) == 1 else ""
        raise Fault(
            "line 1",
            'must be a list of objects, or {"data": [...]} as SQuAD has it; of pandas: '
            f"to_json(FILE, orient='records'){inner}",
        )


def _encodable(cells: Json, text: str, place: str) -> Json:
    """Returns ``cells``, read from the JSON ``text``. Raises Fault for half a surrogate pair,
    which UTF-8 cannot encode."""
    if "\\ud" in text.lower():
        try:
            json.dumps(cells, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = ascii(error.object[error.start])
            raise Fault(
                place,
                f"{half} is half a surrogate pair: a sign such as an emoji was cut in two; "
                "delete this half",
            ) from None
    return cells


def _squad(articles: list[Any]) -> Iterator[Record]:
    """Yields the questions at ``articles[].paragraphs[].qas[]`` (Rajpurkar et al. 2016;
    with ``is_impossible``: 2018)."""
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
        raise Fault(place, f"{name} must be {expected}, as in SQuAD's files")
    return value


def _object(item: Any, place: str) -> Json:
    if not isinstance(item, dict):
        raise Fault(place, f"must be an object with the columns, not {item!r}")
    return item


# CoNLL ---------------------------------------------------------------------------------------


def _conll(lines: Lines, columns: list[str] | None) -> Iterator[Record]:
    """Yields sentences between blank lines, with a word on each line. Without ``columns`` the
    columns are called 1, 2, ...

    Comments before a sentence are skipped. In CoNLL-U, multiword tokens (``2-3``) and empty nodes
    (``8.1``) are skipped, too.
    """
    begin, words = 0, []

    def record() -> Record:
        cells = zip(*words, strict=True)
        return _on_line(begin, {n: list(c) for n, c in zip(columns or [], cells, strict=True)})

    for number, text in lines:
        # Other blanks, such as a no-break space, are part of a word.
        line = text.strip("\r\n")
        cells = line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))
        cells = [cell.strip(" ") for cell in cells]
        if not line.strip() or not any(cells):
            if words:
                yield record()
            words = []
        elif not (
            cells[0] == _DOCUMENT_MARK
            or (columns is CONLLU and not cells[0].isdecimal())
            or (not words and is_comment(line, cells, columns))
        ):
            columns = columns or [str(i) for i in range(1, len(cells) + 1)]
            while len(cells) > len(columns) and not cells[-1]:  # tabs at the end of the line
                cells.pop()
            if len(cells) != len(columns):
                raise Fault(f"line {number}", f"{_unequal(cells, columns)}{advice_on(text)}")
            begin = begin if words else number
            words.append(cells)
    if words:
        yield record()
