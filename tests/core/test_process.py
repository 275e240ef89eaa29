"""The process of a stage: its lock, the line about a mistake, and the machine it runs on."""

import os
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from stages.core import process
from stages.core.parallel import visible_gpus
from stages.core.process import exit_on_mistake, hold


@pytest.mark.parametrize(
    ("fails", "status", "line"),
    [
        (lambda: int("study: wrong"), 2, "error: invalid literal for int() with base 10"),
        (lambda: {}["lost"], 1, "error: KeyError: 'lost' (traceback: "),
    ],
)
def test_exit_on_mistake_prints_one_line(
    fails: Any,
    status: int,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The traceback of an error that is no mistake of the user goes to a file."""
    monkeypatch.setattr(process, "TRACEBACKS", tmp_path / "tracebacks")
    with pytest.raises(SystemExit) as ended:
        exit_on_mistake(fails)
    (printed,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == status and printed.startswith(line)
    files = [*(tmp_path / "tracebacks").glob("*")]
    assert [file.read_text()[:9] for file in files] == ["Traceback"] * (status == 1)


def _hold(file: Path, pipe: Any) -> None:
    with hold(file):
        pipe.send("held")
        pipe.recv()


def test_hold_names_the_process_that_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "WAIT_S", 0.2)
    file = tmp_path / "locks" / "a.lock"
    ours, theirs = get_context("fork").Pipe()
    other = get_context("fork").Process(target=_hold, args=(file, theirs))
    other.start()
    ours.recv()
    with pytest.raises(ValueError) as refused, hold(file):
        pass
    assert f"`kill {other.pid}`" in str(refused.value) and str(file) in str(refused.value)
    ours.send("end")
    other.join()
    with hold(file):
        assert f"process {os.getpid()} " in file.read_text()


@pytest.mark.parametrize(
    ("visible", "expected"), [("3,5", ["3", "5"]), ("", []), (None, ["0", "1"])]
)
def test_visible_gpus_are_those_that_this_process_may_use(
    visible: str | None, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\n/bin/echo 'GPU 0: A (UUID: x)\nGPU 1: B (UUID: y)'\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert visible_gpus() == expected
