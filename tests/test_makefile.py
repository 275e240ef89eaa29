"""The Makefile hands over the names of files as they are."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.smoke import ROOT

pytestmark = pytest.mark.slow  # starts processes

NAMES = ["$(touch RAN).csv", 'a"; touch RAN; ".csv', "a'b $HOME.csv", "-x.csv"]
NEW = ["-m", "stages.commands.new"]
PREDICT = ["-m", "stages.commands.predict"]
REPRO = ["-m", "stages.commands.repro", "--jobs", "auto"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the Makefile and an interpreter that prints its arguments, one on a line."""
    shutil.copyfile(ROOT / "Makefile", tmp_path / "Makefile")
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nif test "$1" = -c; then echo key; else printf "%s\\n" "$@"; fi\n')
    python.chmod(0o755)
    (tmp_path / ".venv/installed").write_text("key\n")
    return tmp_path


def printed(folder: Path, *arguments: str) -> list[str]:
    command = ["make", "--no-print-directory", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", NAMES)
def test_make_gives_no_file_name_to_a_shell(folder: Path, name: str) -> None:
    new = printed(folder, "new", f"DATA={name}", f"TEXT={name}", "FLAGS=--label a")
    assert new == [*NEW, f"--corpus={name}", "--minutes", "10", "--label", "a", "--", name]
    assert printed(folder, "repro", f"STUDY={name}")[:5] == [*REPRO, f"--study={name}"]
    named = [f"--model={name}", f"--task={name}"]
    predict = printed(folder, "predict", f"DATA={name}", f"MODEL={name}", f"TASK={name}")
    assert predict == [*PREDICT, *named, "--", name]
    assert not (folder / "RAN").exists()


def test_make_leaves_out_what_is_not_given(folder: Path) -> None:
    assert printed(folder, "new") == [*NEW, "--minutes", "10"]
    assert printed(folder, "predict") == PREDICT
    assert printed(folder, "repro")[:5] == [*REPRO, "-m"]  # then the summary
