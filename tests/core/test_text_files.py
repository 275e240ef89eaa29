"""Names of files that hold no UTF-8 text, and lines that are no rows."""

from pathlib import Path

import pytest

from stages.core.text_files import (
    OTHER_FILES,
    NotUtf8Error,
    encoding_of,
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
