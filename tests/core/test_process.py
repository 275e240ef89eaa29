"""The end of a stage: errors that a user can mend are messages with a path."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from stages.core.process import exit_on_mistake
from tests.project import ROOT


def failing(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("study: wrong"), "study: wrong"),
        (PermissionError(errno.EACCES, "no", "rows.csv"), "rows.csv: Permission denied"),
        (OSError(errno.ELOOP, "no", "rows.csv"), "rows.csv: Too many levels of symbolic links"),
        (
            OSError(errno.ENOSPC, "no"),
            f"{Path.cwd()}: No space left on device; nothing half-written is left",
        ),
        (
            RuntimeError("I/O error: no space (os error 28)"),
            f"{Path.cwd()}: No space left on device; nothing half-written is left",
        ),
        (ValueError(f"lr: not {'x' * 10**6}"), f"lr: not {'x' * 900}"),
        (BrokenPipeError(errno.EPIPE, "no"), "stdout: is closed, since its reader has ended"),
    ],
)
def test_exit_on_mistake_names_a_path(
    error: Exception, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        exit_on_mistake(failing(error))
    shown = capsys.readouterr().err
    assert shown.startswith(f"error: {message}") and len(shown) < 2000


@pytest.mark.parametrize(
    "error", [KeyError("a"), FileNotFoundError(errno.ENOENT, "no", "a"), RuntimeError("no")]
)
def test_exit_on_mistake_leaves_errors_of_the_program(error: Exception) -> None:
    with pytest.raises(type(error)):
        exit_on_mistake(failing(error))


@pytest.mark.parametrize("allocate", [lambda: np.zeros(2**50), lambda: torch.empty(2**50)])
def test_exit_on_mistake_says_what_needs_less_memory(
    allocate: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        exit_on_mistake(allocate)
    message = capsys.readouterr().err
    assert message.startswith("error: memory: there is too little") and len(message) < 400
    assert message.count("\n") == 1


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "2>&-"])
def test_open_streams_keeps_output_out_of_files(closed: str, tmp_path: Path) -> None:
    code = "import os, stages; f = open('result', 'w'); print('a'); os.write(1, b'b'); f.close()"
    subprocess.run(
        ["bash", "-c", f'"{sys.executable}" -c "{code}" {closed}'],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    assert (tmp_path / "result").read_bytes() == b""


def buffered(arguments: str, redirected: str = "") -> tuple[int, str]:
    """Runs Python with buffered output; returns its exit status and errors."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = f'set -o pipefail; "{sys.executable}" {arguments} {redirected}'
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize(
    ("redirected", "option", "status", "message"),
    [
        (">/dev/full", "", 2, f"error: {ROOT}: No space left on device"),
        ("| true", "", 2, "error: stdout: is closed, since its reader has ended"),
        ("| true", "reader_may_end=True", 0, ""),
    ],
)
def test_exit_on_mistake_when_output_cannot_be_written(
    redirected: str, option: str, status: int, message: str
) -> None:
    show = "lambda: (time.sleep(0.3), print('shown'))"
    code = f"import time; from stages.core.process import *; exit_on_mistake({show}, {option})"
    ended, errors = buffered(f'-c "{code}"', redirected)
    assert ended == status
    assert errors.startswith(message) and errors.count("\n") == bool(message)


@pytest.mark.slow  # starts a process
def test_need_temporary_folder_on_a_full_disk() -> None:
    code = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (0, 0)); import stages"
    ended, errors = buffered(f"-B -c '{code}'")
    assert ended == 2
    assert errors.startswith("error: TMPDIR: No usable temporary directory")
    assert errors.count("\n") == 1
