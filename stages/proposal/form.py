"""The form of a file of text: its format, what is between its columns, whether it has a header."""

import csv
import io
import math
import sys
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any

from stages.sources._formats import DELIMITERS, Delimiter, Format, opened

LOOKED_AT = 500  # lines or rows
LONG_WORDS, LONG_LETTERS = 8, 60  # no name of a column is as long
CONLLU_COLUMNS = 10
MOST_BLANKS = 0.1  # share of lines of words and tags in which a cell has several words
ORANGE_TYPES = {"d", "c", "s", "t", "discrete", "continuous", "string", "time", ""}  # of columns


def content_format(file: Path) -> Format:
    """The format of a file whose name does not tell it.

    Raises ValueError for text without labels and for what is none of the formats.
    """
    lines = _lines(file)
    filled = [line for line in lines if line.strip() and line[0] != "#"]
    if not filled:
        raise ValueError(f"{file}: the file is empty")
    if filled[0].lstrip()[0] == "{" and filled[0].rstrip()[-1] == "}":
        return "jsonl"
    if filled[0].lstrip()[0] in "[{":
        return "json"
    counts = {len(line.split("\t" if "\t" in line else None)) for line in filled}
    if min(counts) > 1 and len(filled) < len(lines) and _are_words(filled):
        if len(counts) > 1 and all("\t" in line for line in filled):
            raise ValueError(_uneven_words(file, sorted(counts)))
        if len(counts) == 1:
            is_conllu = counts == {CONLLU_COLUMNS} and filled[0].split("\t")[0].isdecimal()
            return "conllu" if is_conllu else "conll"
    if len({line.count("\t") for line in filled}) == 1 and "\t" in filled[0]:
        return "tsv"
    if delimiter_of(file, "csv") != "auto" or _is_even(file, ","):
        return "csv"
    raise ValueError(
        f"{file}: no format is recognised, or the text has no labels; --format says which it is, "
        "and --text reads text without labels beside DATA"
    )


def is_quoted(file: Path) -> bool:
    """Whether the rows of a tsv file have equally many cells only if quotation marks hold cells
    together that have tabs or line ends in them."""
    if _is_even(file, "\t", most=None):
        return False
    counts = {len(row) for row in _rows(file, "\t", csv.QUOTE_MINIMAL, most=None, strict=True)}
    return len(counts) == 1 and min(counts) > 1


def refuse_orange(file: Path, rows: list[list[str]]) -> None:
    """Raises ValueError for a table of Orange, whose second and third line are no rows."""
    if len(rows) > 2 and {cell.strip() for cell in rows[1]} <= ORANGE_TYPES and any(rows[1]):
        raise ValueError(
            f"{file} line 2: types of columns, as Orange writes them, are no row; without them and "
            f"line 3: sed 2,3d {quote(str(file))} > {quote(str(file.with_suffix('.tsv')))}"
        )


def delimiter_of(file: Path, form: str) -> Delimiter:
    """``auto`` if it is the one of the format, or if no other gives every row the same cells."""
    usual: Delimiter = "tab" if form == "tsv" else "comma"
    if _is_even(file, DELIMITERS[usual]):
        return "auto"
    others: list[Delimiter] = [
        d for d in DELIMITERS if d != usual and _is_even(file, DELIMITERS[d])
    ]
    return others[0] if others else "auto"


def rows_of(file: Path, form: str, delimiter: Delimiter) -> list[list[str]]:
    """The first rows of a csv or tsv file."""
    sign = DELIMITERS.get(delimiter, "\t" if form == "tsv" else ",")
    quoting = csv.QUOTE_NONE if form == "tsv" else csv.QUOTE_MINIMAL
    rows = _rows(file, sign, quoting)
    if not rows:
        raise ValueError(f"{file}: the file is empty")
    return rows


def is_header(rows: list[list[str]]) -> str:
    """Why the first row is no header; empty if it may be one."""
    first, others = rows[0], rows[1:]
    if first == [str(i) for i in range(len(first))]:  # as pandas numbers columns
        return ""
    for place, cell in enumerate(first):
        shown = cell if len(cell) <= LONG_LETTERS else f"{cell[:LONG_LETTERS]}..."
        if len(cell) > LONG_LETTERS or len(cell.split()) > LONG_WORDS:
            return f"the first line reads like data ({shown!r})"
        below = {row[place].strip() for row in others if place < len(row)}
        if cell.strip() and _is_number(cell):
            return f"the first line has a number ({shown!r})"
        if cell.strip() and cell.strip() in below:
            return f"{shown!r} of the first line is also in a row below"
    return ""


def encoding_advice(file: Path) -> str:
    """How a file that is not UTF-8 can be converted."""
    with opened(file) as binary:
        lines = list(islice(binary, 1_000_000))
    if lines and lines[0][:2] in (b"\xff\xfe", b"\xfe\xff"):
        return f"it is UTF-16: iconv -f UTF-16 -t UTF-8 {file}"
    whole, broken = [], []
    for number, line in enumerate(lines, 1):
        if not line.isascii():
            (whole if _is_utf8(line) else broken).append(number)
    if whole and broken:
        return (
            f"its encodings are mixed: line {whole[0]} is UTF-8, line {broken[0]} is not; "
            f"{len(broken)} such lines must be mended"
        )
    return f"perhaps it is Windows-1252: iconv -f WINDOWS-1252 -t UTF-8 {file}"


def _are_words(lines: list[str]) -> bool:
    """Whether cells between tabs are words rather than texts."""
    cells = [line.split("\t") for line in lines if "\t" in line]
    several = sum(any(len(cell.split()) > 1 for cell in each) for each in cells)
    return several <= MOST_BLANKS * len(lines)


def _uneven_words(file: Path, counts: list[int]) -> str:
    return (
        f"{file}: words with tags, it seems, but lines have {counts[0]} to {counts[-1]} columns; "
        f"the first and the last of each: awk -F'\\t' -v OFS='\\t' 'NF {{print $1, $NF; next}} "
        f"{{print}}' {quote(str(file))} > {quote(str(file.with_suffix('.conll')))}"
    )


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_even(file: Path, sign: str, most: int | None = LOOKED_AT) -> bool:
    """Whether every row has the same number of cells, more than one."""
    quoting = csv.QUOTE_NONE if sign == "\t" else csv.QUOTE_MINIMAL
    counts = {len(row) for row in _rows(file, sign, quoting, most=most)}
    return len(counts) == 1 and min(counts) > 1


def _rows(
    file: Path, sign: str, quoting: int, *, most: int | None = LOOKED_AT, strict: bool = False
) -> list[list[str]]:
    """The first ``most`` rows, or all; none if a quotation does not end."""
    csv.field_size_limit(sys.maxsize)
    form: dict[str, Any] = {"delimiter": sign, "quoting": quoting, "strict": strict}
    with (
        opened(file) as binary,
        io.TextIOWrapper(binary, "utf-8-sig", "replace", newline="") as text,
    ):
        try:
            return [row for row in islice(csv.reader(text, **form), most) if row]
        except csv.Error:
            return []


def _lines(file: Path) -> list[str]:
    with opened(file) as binary, io.TextIOWrapper(binary, "utf-8-sig", "replace") as text:
        return list(islice(text, LOOKED_AT))


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False
