"""The command that lists and bounds the store of trials."""

import gzip
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stages.trials import store
from tests.terminals import check_fits, on_terminals

DAY = 24 * 60 * 60
A, B, C = (letter * 64 for letter in "abc")
NOW = f"{store.UNFINISHED}now"  # still being written
OTHERS = {"thesis", "notes.txt"}  # no trials


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with three trials, unused for 0, 10 and 40 days, and what a killed writer left."""
    monkeypatch.setenv("TRIALS_STORE", str(tmp_path))
    for name, run, days in ((A, "one", 0), (B, "one", 10), (C, "other", 40)):
        folder = tmp_path / name
        folder.mkdir()
        with gzip.open(folder / store.OUTCOME, "wt") as file:
            json.dump({"trial": {"run": run, "task": "tag"}}, file)
        used = time.time() - days * DAY
        os.utime(folder, (used, used))
    (tmp_path / "thesis").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / NOW).mkdir()
    killed = tmp_path / f"{store.UNFINISHED}x"
    killed.mkdir()
    (killed / "weights").write_bytes(bytes(1000))
    used = time.time() - 50 * DAY
    os.utime(killed, (used, used))
    return tmp_path


def listed(run: Callable[..., Any]) -> dict[str, int]:
    record = json.loads(run("trials", "--json").out)
    return {row["run"]: row["trials"] for row in record["trials"]}


def test_trials_lists_what_is_stored_and_how_long_it_was_not_used(held: Path, run) -> None:
    assert listed(run) == {"(unreadable)": 1, "one": 2, "other": 1}
    shown = run("trials").out
    assert f"{held}: 4 trials" in shown.replace("\n", "")
    (line,) = (line for line in shown.splitlines() if "other" in line)
    assert "40.0 days" in line and " 1 " in line


def test_trials_removes_what_was_not_used(held: Path, run) -> None:
    assert "Removed 2 trials" in run("trials", "--remove-unused", "30").out
    assert {path.name for path in held.iterdir()} == {A, B, NOW, *OTHERS}
    run("trials", "--remove-unused", "0")
    assert {path.name for path in held.iterdir()} == {NOW, *OTHERS}
    assert json.loads(run("trials", "--remove-unused", "0", "--json").out)["removed"] == 0


def test_trials_of_an_empty_store_and_with_a_wrong_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run
) -> None:
    monkeypatch.setenv("TRIALS_STORE", str(tmp_path / "none"))
    assert listed(run) == {}
    for wrong in ("-1", "nan"):
        ended = run("trials", f"--remove-unused={wrong}")
        assert ended.status == 2 and "--remove-unused" in ended.err


@pytest.mark.slow
def test_trials_cuts_nothing_on_any_terminal(held: Path) -> None:
    for width, text in on_terminals("trials", folder=held, TRIALS_STORE=str(held)).items():
        check_fits(text, width, "(unreadable)", "one", "other", "40.0 days", "50.0 days")
        assert str(held) in text.replace("\n", "")
