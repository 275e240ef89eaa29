"""Processes end with the process that started them, and save their work when a signal ends them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
IMPORTS = "import os, signal, sys, time; from pathlib import Path; from stages.core import ending; "
# Saves when a signal comes, and would go on for a minute after it.
SAVES = """
with ending.held_signals() as came:
    print(os.getpid(), flush=True)
    while not came:
        time.sleep(0.01)
    Path("saved").touch()
time.sleep(60)
"""


@contextmanager
def started(code: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yields a process and the first number that it prints: its own pid, or that of a child."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"{IMPORTS}\n{code}"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    pid = int(process.stdout.readline())
    try:
        yield process, pid
    finally:
        for number in {process.pid, pid}:
            if lives(number):
                os.kill(number, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def lives(pid: int) -> bool:
    """Returns whether a process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def seconds_until_dead(pid: int) -> float:
    began = time.monotonic()
    while lives(pid) and time.monotonic() - began < 20:
        time.sleep(0.01)
    return time.monotonic() - began


def forked(child: str) -> str:
    """Returns code that runs ``child`` in a fork and then waits."""
    return f"if os.fork() == 0:\n    exec({child!r})\ntime.sleep(60)"


@pytest.mark.slow
def test_held_signals_give_time_to_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with started(SAVES) as (process, pid):
        os.kill(pid, signal.SIGTERM)
        assert process.wait(5) == -signal.SIGTERM
    assert Path("saved").exists()


@pytest.mark.slow
def test_die_with_parent_ends_the_child_of_a_dead_parent() -> None:
    late = "parent = os.getppid(); print(os.getpid(), flush=True); time.sleep(0.3); "
    with started(forked(f"{late}ending.die_with_parent(parent); time.sleep(60)")) as (process, pid):
        process.kill()
        process.wait()
        assert seconds_until_dead(pid) < 5


@pytest.mark.slow
@pytest.mark.parametrize(("variables", "dies"), [({"DVC_STAGE": "a"}, True), ({}, False)])
def test_importing_stages_ends_a_stage_whose_dvc_is_dead(
    variables: dict[str, str], dies: bool
) -> None:
    """A stage that is run by hand, without DVC_STAGE, outlives its parent."""
    # The parent leads its own process group, as a DVC of a shell or a scheduler does.
    late = f"os.environ.update({variables}); print(os.getpid(), flush=True); time.sleep(0.3); "
    stage = [sys.executable, "-c", "import stages; print('goes on')"]
    child = f"{late}os.execv({sys.executable!r}, {stage})"
    with started(f"os.setpgrp(); os.environ.pop('DVC_STAGE', None)\n{forked(child)}") as (dvc, _):
        dvc.kill()
        dvc.wait()
        assert dvc.stdout and dvc.stdout.readline() == ("" if dies else "goes on\n")


def test_every_command_of_dvc_replaces_its_shell() -> None:
    pipeline = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())
    (torch,) = [var["torch"] for var in pipeline["vars"] if "torch" in var]
    for stage in pipeline["stages"].values():
        command = stage.get("do", stage)["cmd"].replace("${torch}", torch)
        assert command.startswith("exec ")
