"""Reads the lines of UTF-8 text files, plain or as .gz, and recognises other kinds of files."""

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from io import IOBase
from itertools import chain
from pathlib import Path
from typing import Any

ENCODING_BYTES = 100_000  # beginning of a file from which its encoding is guessed
MOST_LINE_BYTES = 2**29  # a longer line would need some gigabytes of memory
CLOSE = 0.05  # differences in charset-normalizer's coherence below this do not decide
NO_WHOLE_GZIP = gzip.BadGzipFile, EOFError, zlib.error
OTHER_FILES = {
    b"PK\x03\x04": "an xlsx or zip file; save the sheet as csv UTF-8, or unpack it",
    b"\x80\x04": "a pickle, which can run code; save its table as csv",
    b"x\x9c": "compressed, perhaps a spaCy file; write a word and its tag on each line instead",
    b"ARROW1": "an Arrow file; save it as parquet",
    b"version https://git-lfs": "a pointer of Git LFS; fetch the file: git lfs pull",
    b"\xd0\xcf\x11\xe0": "an xls file (Excel); save the sheet as csv UTF-8",
    b"\x1f\x8b": "a gzip file; add .gz to its name",
    b"BZh": "a bzip2 file; unpack it: bunzip2 FILE",
    b"\xfd7zXZ": "an xz file; unpack it: unxz FILE",
    b"\x28\xb5\x2f\xfd": "a zstandard file; unpack it: unzstd FILE",
    b"7z\xbc\xaf": "a 7z file; unpack it",
    b"PAR1": "a parquet file; give it the ending .parquet, or `format: parquet`",
    b"Rar!": "a RAR file; unpack it",
    b"FEA1": "a Feather file; save it as parquet",
    b"\x89HDF": "an HDF5 file; save its table as parquet",
    b"\x93NUMPY": "an array of NumPy; save it as csv",
    b"{\\rtf": "an RTF file; save it as text",
    b"%PDF": "a PDF; export its text",
    b"SQLite format 3": "an SQLite database; export its table as csv",
    b"\xff\xfe": "UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW",
    b"\xfe\xff": "UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW",
}
# A comment above a sentence: `# id 1`, `# text = ...`, `#begin document`.
_COMMENT = re.compile(
    r"#\s*[\w.:]+\s*=|#\s*((sent_?|doc_?)?id|(begin|end)\s+document|newdoc|newpar)\b", re.IGNORECASE
)
Lines = Iterable[tuple[int, str]]  # numbered from 1


class Fault(Exception):
    """A fault at a place in a file."""

    def __init__(self, place: str, message: str) -> None:
        super().__init__(f"{place}: {message}")


class _NotUtf8(Fault):
    pass


def error_of(fault: Fault, name: str) -> ValueError:
    if not isinstance(fault, _NotUtf8):
        return ValueError(f"{name} {fault}")
    error = NotUtf8Error(f"{name} {fault}")
    error.name = name
    return error


class NotUtf8Error(ValueError):
    """The error that the file ``name`` is not in UTF-8. The message is the only argument, so that
    one process can send the error to another."""

    name: str


def opened(file: Path) -> Any:
    """Opens the file for reading bytes, decompressed if it is .gz."""
    return gzip.open(file) if file.suffix == ".gz" else file.open("rb")


def bounded_lines(file: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the lines of a file; raises Fault at a line of more than ``MOST_LINE_BYTES``."""
    if not isinstance(file, IOBase):
        yield from file  # a list of lines that are read already
        return
    number = 0
    while line := file.readline(MOST_LINE_BYTES + 1):
        number += 1
        if len(line) > MOST_LINE_BYTES:
            size = f"{MOST_LINE_BYTES / 2**20:.0f} MB"
            raise Fault(f"line {number}", f"the line has more than {size}; break it into lines")
        yield line


def numbered_lines(file: Iterable[bytes], first: int = 1) -> Iterator[tuple[int, str]]:
    number = first - 1
    try:
        for line in bounded_lines(file):
            number += 1
            if number == 1:
                for mark, what in OTHER_FILES.items():
                    if line.startswith(mark):
                        raise Fault("line 1", f"this is {what}")
                if b"\0" in line:
                    utf16 = "UTF-16 text: iconv -f UTF-16LE -t UTF-8 FILE > NEW"
                    raise Fault("line 1", f"has bytes of 0: it is a binary file, or {utf16}")
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            del line  # a line may be a whole book
            yield number, text
    except UnicodeDecodeError as error:
        byte, after = (error.object + b"\0")[error.start : error.start + 2]
        if byte == 0xED and after >= 0xA0:  # CESU-8
            what = "half a surrogate pair, which UTF-8 does not have: a sign such as an emoji"
            raise Fault(f"line {number}", f"has {what}; delete it or write it whole") from None
        raise _NotUtf8(
            f"line {number}", f"byte {byte:#04x} is not UTF-8; convert the file"
        ) from None
    except NO_WHOLE_GZIP as error:
        raise cut_off(number + 1, error) from None


def cut_off(number: int, error: Exception) -> Fault:
    return Fault(f"line {number}", f"no whole gzip file: {error}")


def text_lines(file: Path) -> Iterator[str]:
    """Yields each line, empty lines included. Raises ValueError with the file and the line for
    bytes that are no text."""
    with opened(file) as binary:
        try:
            yield from (line for _, line in numbered_lines(binary))
        except Fault as fault:
            raise error_of(fault, str(file)) from None


def encoding_of(file: Path) -> str:
    """Returns the encoding that the file's bytes suggest, by its name in ``iconv``."""
    from charset_normalizer import from_bytes  # the import takes a tenth of a second

    with opened(file) as binary:
        matches = from_bytes(binary.read(ENCODING_BYTES))
    best = matches.best()
    if best is None:
        return "WINDOWS-1252"
    # Most texts fit Central European code pages as well as Western ones.
    western = [m for m in matches if m.encoding == "cp1252" and m.chaos <= best.chaos]
    close = western and (
        western[0].coherence >= best.coherence - CLOSE
        or best.language == "English" != western[0].language  # as for a list of Danish words
    )
    is_western = close or "cp1252" in best.could_be_from_charset
    return "WINDOWS-1252" if is_western else best.encoding.upper().replace("CP125", "WINDOWS-125")


# Lines that are no rows ---------------------------------------------------------------------------


def sep_line(texts: Iterable[str]) -> tuple[str | None, Iterator[str]]:
    """Returns the delimiter that a first line such as ``sep=;`` states, and the other lines.
    Without such a line, returns None and all lines."""
    texts = iter(texts)
    first = next(texts, "")
    if sep := re.fullmatch(r"(?i)\"?sep=(.)\"?[;,\s]*", first):
        return sep[1], texts
    return None, chain([first] if first else [], texts)


def repeats_header(cells: list[str], columns: list[str]) -> bool:
    """Whether a row repeats the header, apart from case, blanks and a byte order mark."""
    plain = [cell.strip('\ufeff "').casefold() for cell in cells[: len(columns)]]
    return len(columns) > 1 and plain == [column.strip().casefold() for column in columns]


def advice_on(row: str) -> str:
    """Returns advice on a row with an escape or a line end that csv does not have, else ``""``."""
    if '\\"' in row:
        return r"""; the row has \" for "", a quotation mark of csv: sed 's/\\"/""/g' FILE > NEW"""
    if "\r" in row.replace("\r\n", ""):
        inside = "sed -e 's/\\r$//' -e 's/\\r/ /g'" if "\n" in row else "tr '\\r' '\\n' <"
        return f"; the row has a carriage return (\\r) that ends no line: {inside} FILE > NEW"
    return ""


def is_comment(line: str, cells: list[str], columns: list[str] | None) -> bool:
    """Whether a line before a sentence is a comment. The word `#` in a line with all columns is not
    a comment."""
    if columns is None:
        return bool(_COMMENT.match(line)) or line.startswith("# ")
    has_all = len(cells) >= len(columns) and not any(map(str.strip, cells[len(columns) :]))
    is_word = has_all and " " not in cells[0]
    return bool(_COMMENT.match(line)) or (line.startswith(("# ", "#\t")) and not is_word)
