"""Locks name the process that holds them, and nobody waits for ever."""

import os
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from stages.core import locks
from stages.core.locks import LockHeld, hold


def _hold(file: Path, pipe: Any) -> None:
    with hold(file):
        pipe.send("held")
        pipe.recv()


def test_hold_names_the_process_that_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(locks, "WAIT_S", 0.2)
    file = tmp_path / "locks" / "a.lock"
    ours, theirs = get_context("fork").Pipe()
    other = get_context("fork").Process(target=_hold, args=(file, theirs))
    other.start()
    ours.recv()
    with pytest.raises(LockHeld) as refused, hold(file):
        pass
    assert f"`kill {other.pid}`" in str(refused.value) and str(file) in str(refused.value)
    (line,) = capsys.readouterr().err.splitlines()
    assert "waiting" in line and str(file) in line
    ours.send("end")
    other.join()
    with hold(file):
        assert f"process {os.getpid()} " in file.read_text()
