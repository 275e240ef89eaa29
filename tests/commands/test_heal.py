"""A killed DVC leaves files that would stop the next DVC; `heal` repairs them."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from stages.commands import heal
from tests import warm_python

STAGES = """\
stages:
  one: {cmd: echo 1 > one, outs: [one]}
  two: {cmd: cat one one > two, deps: [one], outs: [two]}
"""
pytestmark = pytest.mark.slow
EXEC = "exec -a dvc sleep 60"


def dvc(*arguments: str) -> subprocess.CompletedProcess[str]:
    # No analytics and no settings of this machine.
    environment = os.environ | {"DVC_NO_ANALYTICS": "1", "HOME": str(Path.cwd())}
    command = [warm_python.commands() / "dvc", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lock of two stages that have run."""
    monkeypatch.chdir(tmp_path)
    assert dvc("init", "--no-scm").returncode == 0
    Path("dvc.yaml").write_text(STAGES)
    assert dvc("repro").returncode == 0
    return Path("dvc.lock")


def entries(lock: Path) -> dict[str, object]:
    return YAML(typ="safe").load(lock.read_text()).get("stages", {})


def test_heal_keeps_the_whole_entries_wherever_the_lock_is_cut(
    lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, before = lock.read_text(), entries(lock)
    begins = {name: text.index(f"\n  {name}:") for name in before}
    monkeypatch.setattr(heal, "running_dvc", lambda: None)  # it looks at every process
    for end in range(0, len(text), 3):
        lock.write_text(text[:end])
        heal.heal()
        healed = entries(lock)
        complete = [
            name for name, at in begins.items() if any(at < b < end for b in begins.values())
        ]
        assert all(healed[name] == before[name] for name in complete), end
    lock.write_text(text)
    heal.heal()
    assert lock.read_text() == text


def test_heal_lets_dvc_go_on_and_compute_nothing_again(lock: Path) -> None:
    text = lock.read_text()
    lock.write_text(text[: text.rindex("path:") + 5])
    heal.RWLOCK.write_text('{"read": {"one')
    assert dvc("repro").returncode != 0
    heal.heal()
    again = dvc("repro")
    assert again.returncode == 0 and "is cached" in again.stdout and lock.read_text() == text


def test_heal_removes_empty_folders_from_the_run_cache(lock: Path) -> None:
    """DVC makes the folder before it writes the record."""
    assert dvc("cache", "dir", "--local", "elsewhere").returncode == 0
    assert dvc("repro", "--force").returncode == 0
    for record in Path("elsewhere/runs").glob("*/*/*"):
        record.unlink()
    Path("one").unlink()
    lock.unlink()
    assert dvc("repro").returncode != 0
    heal.heal()
    assert dvc("repro").returncode == 0


def test_heal_changes_nothing_while_another_dvc_runs(lock: Path) -> None:
    half = lock.read_text()[:-40]
    lock.write_text(half)
    # A later argument "dvc" does not make it a DVC: the first words do.
    other = [sys.executable, "-c", "import time; time.sleep(60)", "dvc"]
    running = [subprocess.Popen(command) for command in (other, ["bash", "-c", EXEC])]
    try:
        # During exec its command line is empty.
        while not Path(f"/proc/{running[1].pid}/cmdline").read_text().startswith("dvc"):
            time.sleep(0.01)
        heal.heal()
        assert lock.read_text() == half
        running[1].kill()
        running[1].wait()
        heal.heal()
        assert lock.read_text() != half
    finally:
        for process in running:
            process.kill()
            process.wait()
