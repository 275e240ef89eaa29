"""Files that hold no UTF-8 text are named."""

from pathlib import Path

import pytest

from stages.core.text_files import OTHER_FILES, text_lines


@pytest.mark.parametrize("content", [*OTHER_FILES, "Größe".encode("cp1252"), b"a\0b"])
def test_text_lines_names_files_that_are_no_text(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(content + b"\n")
    with pytest.raises(ValueError, match="a.csv line 1: "):
        list(text_lines(tmp_path / "a.csv"))
