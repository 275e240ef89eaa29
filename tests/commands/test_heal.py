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


@pytest.mark.slow
def test_heal_keeps_the_whole_entries_wherever_the_lock_is_cut(lock: Path) -> None:
    text, before = lock.read_text(), entries(lock)
    begins = {name: text.index(f"\n  {name}:") for name in before}
    for end in range(len(text)):
        lock.write_text(text[:end])
        heal.heal()
        healed = entries(lock)
        assert heal._is_whole(lock.read_text()), end
        complete = [
            name for name, at in begins.items() if any(at < b < end for b in begins.values())
        ]
        assert all(healed[name] == before[name] for name in complete), end
    lock.write_text(text)
    heal.heal()
    assert lock.read_text() == text


@pytest.mark.slow
def test_heal_lets_dvc_go_on_and_compute_nothing_again(
    lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = lock.read_text()
    lock.write_text(text[: text.rindex("path:") + 5])
    assert dvc("repro").returncode != 0
    heal.heal()
    assert "dvc.lock" in capsys.readouterr().out
    again = dvc("repro")
    assert again.returncode == 0 and "is cached" in again.stdout and lock.read_text() == text


@pytest.mark.slow
@pytest.mark.parametrize("cache", [".dvc/cache", "elsewhere"])
def test_heal_removes_empty_folders_from_the_run_cache(
    cache: str, lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """DVC makes the folder before it writes the record."""
    assert dvc("cache", "dir", "--local", cache).returncode == 0
    assert dvc("repro", "--force").returncode == 0
    records = [*Path(cache, "runs").glob("*/*/*")]
    for record in records:
        record.unlink()
    Path("one").unlink()
    lock.unlink()
    failed = dvc("repro")
    assert failed.returncode != 0 and "join() argument must be str" in failed.stderr
    lock.touch()
    heal.heal()
    removed = capsys.readouterr().out
    assert all(f"Removed {record.parent}" in removed for record in records)
    assert dvc("repro").returncode == 0


@pytest.mark.slow
def test_heal_removes_a_damaged_record_of_readers_and_writers(
    lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for left in ("", '{"read": {"one'):
        heal.RWLOCK.write_text(left)
        assert dvc("repro", "--force").returncode != 0
        heal.heal()
        assert str(heal.RWLOCK) in capsys.readouterr().out
        assert dvc("repro", "--force").returncode == 0


@pytest.mark.slow
def test_heal_changes_nothing_while_another_dvc_runs(lock: Path) -> None:
    half = lock.read_text()[:-40]
    lock.write_text(half)
    running = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "dvc"])
    try:
        # A later argument "dvc" does not make it a DVC: the first words do.
        assert heal.running_dvc() is None
        other = subprocess.Popen(["bash", "-c", "exec -a dvc sleep 60"])
        # During exec its command line is empty.
        while not Path(f"/proc/{other.pid}/cmdline").read_text().startswith("dvc"):
            time.sleep(0.01)
        heal.heal()
        assert lock.read_text() == half
        other.kill()
        other.wait()
        heal.heal()
        assert lock.read_text() != half
    finally:
        running.kill()
        running.wait()


@pytest.mark.slow
def test_heal_refuses_a_lock_that_was_edited_by_hand(lock: Path) -> None:
    text = lock.read_text().replace("cmd: echo", "command: echo")
    lock.write_text(text)
    with pytest.raises(ValueError, match="git checkout dvc.lock"):
        heal.heal()
    assert lock.read_text() == text
