"""Numbers of README.md and docs/results.md come from files."""

import subprocess
import sys

from tests.project import ROOT


def test_tables_and_numbers_are_those_of_the_files() -> None:
    command = [sys.executable, "benchmarks/results.py", "--check"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
