"""Reads the lines of UTF-8 text files, plain or as .gz."""

import difflib
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

OTHER_FILES = {  # files that often have the wrong ending, by their first bytes
    b"PK\x03\x04": "an xlsx or zip file; save the sheet as csv UTF-8, or unpack it",
    b"\x1f\x8b": "a gzip file; add .gz to its name",
    b"PAR1": "a parquet file; give it the ending .parquet, or `format: parquet`",
    b"version https://git-lfs": "a pointer of Git LFS; fetch the file: git lfs pull",
    b"{\\rtf": "an RTF file; save it as text",
    b"\xff\xfe": "UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW",
    b"\xfe\xff": "UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW",
    b"\0": "a binary file, or UTF-16 text (iconv -f UTF-16LE)",  # anywhere in the line
}
# A comment above a sentence: `# id 1`, `# text = ...`, `#begin document`.
_COMMENT = re.compile(
    r"#\s*[\w.:]+\s*=|#\s*((sent_?|doc_?)?id|(begin|end)\s+document|newdoc|newpar)\b", re.IGNORECASE
)

Lines = Iterator[tuple[int, str]]  # numbered from 1


def existing(path: Path, where: str = "") -> Path:
    """Returns ``path``; raises ValueError if nothing is there, with the flag ``where`` and the most
    similar name in the folder."""
    if not path.exists():
        beside = path.parent.iterdir() if path.parent.is_dir() else ()
        stems = {other.name.partition(".")[0]: str(other) for other in sorted(beside)}
        near = difflib.get_close_matches(path.name.partition(".")[0], stems, n=1)
        guess = f"; did you mean {stems[near[0]]}?" if near else ""
        raise ValueError(f"{where}{path}: no such file{guess}")
    return path


def opened(file: Path) -> Any:
    """Opens the file for reading bytes, decompressed if it is .gz."""
    return gzip.open(file) if file.suffix == ".gz" else file.open("rb")


def numbered_lines(file: Iterable[bytes], name: str) -> Lines:
    """Yields the lines with their numbers. Raises ValueError with the file's ``name`` and the line
    for bytes that are no text."""
    number = 0
    try:
        for number, line in enumerate(file, 1):
            for mark, what in OTHER_FILES.items() if number == 1 else ():
                if line.startswith(mark) or (mark == b"\0" and mark in line):
                    raise ValueError(f"{name} line 1: this is {what}")
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ValueError(
            f"{name} line {number}: byte {byte:#04x} is not UTF-8; convert the file: "
            "iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW, if that is its encoding"
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{name} line {number + 1}: no whole gzip file: {error}") from None


def text_lines(file: Path) -> Iterator[str]:
    """Yields each line; raises the errors of ``numbered_lines``."""
    with opened(file) as binary:
        yield from (line for _, line in numbered_lines(binary, str(file)))


# Lines that are no rows ---------------------------------------------------------------------------


def sep_line(texts: Iterable[str]) -> tuple[str | None, Iterator[str]]:
    """Returns the delimiter that Excel's first line ``sep=;`` states, and the other lines; without
    such a line None and all lines."""
    texts = iter(texts)
    first = next(texts, "")
    if sep := re.fullmatch(r"(?i)\"?sep=(.)\"?[;,\s]*", first):
        return sep[1], texts
    return None, chain([first] if first else [], texts)


def repeats_header(cells: list[str], columns: list[str]) -> bool:
    """Whether a row repeats the header, apart from case, blanks and a byte order mark."""
    plain = [cell.strip('\ufeff "').casefold() for cell in cells[: len(columns)]]
    return len(columns) > 1 and plain == [column.strip().casefold() for column in columns]


def is_comment(line: str, cells: list[str], columns: list[str] | None) -> bool:
    """Whether a line above a sentence is a comment, and not a row whose word is `#`."""
    is_full = columns is not None and len(cells) >= len(columns) and not any(cells[len(columns) :])
    is_word = is_full and " " not in cells[0]
    return bool(_COMMENT.match(line)) or (line.startswith(("# ", "#\t")) and not is_word)
