"""The end of a stage: a mistake of the user is one line, and so is any other error."""

from pathlib import Path

import pytest

from stages.core import process
from stages.core.process import exit_on_mistake


def test_exit_on_mistake_names_what_the_user_has_to_mend(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="2"):
        exit_on_mistake(lambda: int("study: wrong"))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and "study: wrong" in line


def test_exit_on_mistake_keeps_the_traceback_of_an_unexpected_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(process, "TRACEBACKS", tmp_path / "tracebacks")
    with pytest.raises(SystemExit, match="1"):
        exit_on_mistake(lambda: {}["lost"])
    (line,) = capsys.readouterr().err.splitlines()
    (file,) = (tmp_path / "tracebacks").iterdir()
    assert line == f"error: KeyError: 'lost' (traceback: {file})"
    assert file.read_text().startswith("Traceback") and "exit_on_mistake" in file.read_text()
