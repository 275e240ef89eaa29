"""Names of files that hold no UTF-8 text, and lines that are no rows."""

import gzip
from pathlib import Path

import pytest

from stages.core import text_files
from stages.core.text_files import (
    OTHER_FILES,
    NotUtf8Error,
    encoding_of,
    is_comment,
    repeats_header,
    sep_line,
    text_lines,
)

GERMAN = "Die Größe gilt für alle Bücher – „schön“ genug…\n" * 40
CZECH = "Příliš žluťoučký kůň úpěl ďábelské ódy\n" * 40
RUSSIAN = "Это хороший фильм, и книга не хуже\n" * 40


@pytest.mark.parametrize(
    ("text", "encoding"),
    [(GERMAN, "WINDOWS-1252"), (CZECH, "WINDOWS-1250"), (RUSSIAN, "WINDOWS-1251")],
)
def test_encoding_of_a_file_is_what_its_letters_suggest(
    text: str, encoding: str, tmp_path: Path
) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(text.encode(encoding))
    with pytest.raises(NotUtf8Error, match="a.csv line 1: byte .* is not UTF-8"):
        list(text_lines(file))
    assert encoding_of(file) == encoding


@pytest.mark.parametrize("mark", OTHER_FILES)
def test_text_lines_names_other_files(mark: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(mark + b"\n")
    with pytest.raises(ValueError, match="a.csv line 1: this is "):
        list(text_lines(tmp_path / "a.csv"))


def test_sep_line_gives_the_sign_and_the_other_lines() -> None:
    for first in ("sep=;\n", '"sep=;"\r\n', "SEP=;"):
        sign, lines = sep_line([first, "a;b\n"])
        assert (sign, [*lines]) == (";", ["a;b\n"])
    sign, lines = sep_line(["a,b\n", "sep=;\n"])
    assert (sign, [*lines]) == (None, ["a,b\n", "sep=;\n"])
    assert [*sep_line([])[1]] == []


def test_repeats_header_ignores_case_blanks_and_marks() -> None:
    assert repeats_header(["\ufeffText", " LABEL "], ["text", "label"])
    assert not repeats_header(["text", "good"], ["text", "label"])
    assert not repeats_header(["text"], ["text"])  # "text" may be a row


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("# id 7", True),
        ("# text = x", True),
        ("#begin document x", True),
        ("# a comment of words", True),
        ("# O", False),
        ("#win O", False),
        ("word O", False),
    ],
)
def test_is_comment_of_a_line_with_other_columns(line: str, expected: bool) -> None:
    assert is_comment(line, line.split(), ["words", "tags"]) == expected


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_text_lines_refuses_a_line_that_would_fill_the_memory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "MOST_LINE_BYTES", 2**20)
    write = gzip.open if name.endswith(".gz") else open
    file = tmp_path / name
    with write(file, "wb") as binary:
        binary.write(b"x" * (2**20 - 1) + b"\n" + b"x" * 2**20 + b"\n")
    with pytest.raises(ValueError, match=r"a\.txt.* line 2: the line has more than 1 MB"):
        list(text_lines(file))
