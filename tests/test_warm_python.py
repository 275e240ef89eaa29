"""Forked processes behave like those that Python starts."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import warm_python

pytestmark = pytest.mark.slow

SAYS = """
import os, sys
print(sys.argv[1:], os.getcwd(), os.environ["GIVEN"], sys.stdin.read())
print("beside", file=sys.stderr)
sys.exit(3)
"""


@pytest.mark.parametrize(
    "words",
    [
        ("-c", SAYS, "one", "2"),
        ("-m", "here", "one"),
        ("-c", "raise SystemExit('no')"),
        ("-c", "import os; os.kill(os.getpid(), 9)"),
    ],
)
def test_commands_run_a_program_as_python_does(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "here.py").write_text("import sys; print(__name__, sys.argv[1:])")
    warm, cold = (
        subprocess.run(
            [python, *words],
            input="in",
            cwd=tmp_path,
            env={"GIVEN": "x"},
            capture_output=True,
            text=True,
        )
        for python in (warm_python.commands() / "python", sys.executable)
    )
    assert (warm.returncode, warm.stdout) == (cold.returncode, cold.stdout)
    assert warm.stderr.splitlines()[-1:] == cold.stderr.splitlines()[-1:]


def test_commands_end_with_the_process_that_asked() -> None:
    sleeping = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    command = [warm_python.commands() / "python", "-c", sleeping]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        pid = int(asking.stdout.readline())
        asking.send_signal(signal.SIGKILL)
    ends = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < ends:
        time.sleep(0.01)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
