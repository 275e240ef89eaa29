"""Forked processes behave as those that Python starts."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import warm_python

pytestmark = pytest.mark.slow

PYTHONS = {"warm": lambda: str(warm_python.commands() / "python"), "cold": lambda: sys.executable}
SAYS = """
import os, sys
print(sys.argv[1:], os.getcwd(), os.environ["GIVEN"], sys.stdin.read(), "torch" in sys.modules)
print("beside", file=sys.stderr)
sys.exit(3)
"""


def ran(python: str, *words: str, **named) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python, *words], capture_output=True, text=True, **named)


def test_streams_arguments_environment_and_status_are_its_own(tmp_path) -> None:
    found = {
        which: ran(python(), "-c", SAYS, "one", "2", input="in", cwd=tmp_path, env={"GIVEN": "x"})
        for which, python in PYTHONS.items()
    }
    for which, done in found.items():
        has_torch = which == "warm"
        assert done.stdout == f"['one', '2'] {tmp_path} x in {has_torch}\n"
        assert done.stderr == "beside\n" and done.returncode == 3


@pytest.mark.parametrize("which", PYTHONS)
def test_modules_and_scripts_are_those_of_the_folder(which, tmp_path) -> None:
    python = PYTHONS[which]()
    (tmp_path / "here.py").write_text("print(__name__)")
    (tmp_path / "script.py").write_text("import here, sys; print(sys.argv)")
    assert ran(python, "-m", "here", cwd=tmp_path).stdout == "__main__\n"
    said = ran(python, str(tmp_path / "script.py"), "given").stdout
    assert said == f"here\n['{tmp_path}/script.py', 'given']\n"


@pytest.mark.parametrize("which", PYTHONS)
def test_an_exception_is_a_traceback_and_a_message_an_error(which) -> None:
    python = PYTHONS[which]()
    raised = ran(python, "-c", "1 / 0")
    assert raised.returncode == 1 and "ZeroDivisionError" in raised.stderr
    refused = ran(python, "-c", "raise SystemExit('no')")
    assert refused.returncode == 1 and refused.stderr == "no\n"


@pytest.mark.parametrize("which", PYTHONS)
def test_it_ends_by_the_signal_that_it_gets(which) -> None:
    python = PYTHONS[which]()
    for number in (signal.SIGKILL, signal.SIGTERM):
        done = ran(python, "-c", f"import os; os.kill(os.getpid(), {int(number)})")
        assert done.returncode == -number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["ended", "killed"])
def test_it_ends_with_the_command_that_asked_for_it(number: int, tmp_path: Path) -> None:
    sleeping = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    command = [PYTHONS["warm"](), "-c", sleeping]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        pid = int(asking.stdout.readline())
        assert pid != asking.pid
        asking.send_signal(number)
        assert asking.wait(10) == -number
    ends = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < ends:
        time.sleep(0.01)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
