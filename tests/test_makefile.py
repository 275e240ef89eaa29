"""The Makefile hands over the names of files as they are."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.smoke import ROOT

pytestmark = pytest.mark.slow  # starts processes

NAMES = ["$(touch RAN).csv", 'a"; touch RAN; ".csv', "a'b $HOME.csv", "-x.csv"]


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
    expected = [f"--corpus={name}", "--minutes", "10", "--label", "a", "--", name]
    assert new == ["-m", "stages.commands.new", *expected]
    repro = printed(folder, "repro", f"STUDY={name}")
    assert repro[:5] == ["-m", "stages.commands.repro", "--jobs", "auto", f"--study={name}"]
    assert not (folder / "RAN").exists()


def test_make_leaves_out_what_is_not_given(folder: Path) -> None:
    assert printed(folder, "new") == ["-m", "stages.commands.new", "--minutes", "10"]
    assert printed(folder, "repro")[:4] == ["-m", "stages.commands.repro", "--jobs", "auto"]
    assert "--study" not in "".join(printed(folder, "repro"))


def test_make_plan_refuses_a_study_that_it_would_not_read(folder: Path) -> None:
    command = ["make", "--no-print-directory", "plan", "STUDY=a.yaml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "copy the study there first" in done.stderr and not done.stdout
