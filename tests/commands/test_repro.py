"""The command that runs a study: its jobs, its refusals and the study that it puts in place.
tests/scheduling has the runs themselves."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stages.scheduling
from stages.commands import repro
from stages.core import parallel
from stages.core.parallel import cores
from stages.core.study_file import load
from stages.scheduling import pool
from tests.smoke import ROOT, with_values

LOCK = repro._lock


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a study that has stages to run; DVC is never called."""
    monkeypatch.chdir(tmp_path)
    with_values(tmp_path, {"compute.threads": 1})
    monkeypatch.setattr(repro, "pending", lambda params: {"resolve": []})
    monkeypatch.setattr(repro, "REPRO", [sys.executable, "-c", "pass"])
    monkeypatch.setattr(repro, "_lock", lambda: None)  # a lock lasts as long as the process
    monkeypatch.delenv("MAKELEVEL", raising=False)


@pytest.fixture
def refusal(run: Callable[..., Any]) -> Callable[..., str]:
    """Runs the command with arguments that it refuses, and returns the last line of its reason."""

    def refusal(*arguments: str) -> str:
        ended = run("repro", *arguments)
        assert ended.status == 2
        return ended.err.strip().splitlines()[-1]

    return refusal


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        *((["--jobs", jobs], ["--jobs", jobs, "auto"]) for jobs in ("0", "-3", "1.5", "some")),
        (["--jobs", "auto", "--cluster", "slurm"], ["error: --jobs", "cluster"]),
        (["--jobs", str(cores() + 1)], ["error: --jobs", str(cores())]),
    ],
)
def test_repro_refuses_jobs(
    arguments: list[str], words: list[str], refusal: Callable[..., str]
) -> None:
    message = refusal(*arguments)
    assert all(word in message for word in words)


def test_repro_refuses_a_batch_system_that_is_missing_or_has_no_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "sbatch" in refusal("--cluster", "slurm")
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\n")
    sbatch.chmod(0o755)
    assert "jobqueue.slurm.cores" in refusal("--cluster", "slurm")


def test_repro_refuses_a_scheduler_that_is_not_running(
    monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., str]
) -> None:
    monkeypatch.setattr(pool, "PATIENCE_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    message = refusal("--scheduler", address)
    assert address in message and "dask scheduler" in message


def test_repro_says_what_is_missing_without_dask(
    monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., str]
) -> None:
    monkeypatch.delitem(sys.modules, "stages.scheduling.pool", raising=False)
    monkeypatch.delattr(stages.scheduling, "pool", raising=False)
    monkeypatch.setitem(sys.modules, "distributed", None)
    message = refusal("--jobs", "2")
    assert "distributed" in message and "make setup" in message


@pytest.mark.parametrize(
    ("threads", "gpus", "settings", "expected"),
    [
        (1, [], {}, 8),
        (3, [], {}, 2),
        (16, [], {}, 0),  # one call of DVC, whose stages run trials side by side
        (1, ["0", "1"], {}, 2),
        (1, ["0", "1"], {"distributed.devices": 2}, 1),
        (4, ["0", "1"], {"compute.device": "cpu"}, 2),
    ],
)
def test_repro_starts_as_many_jobs_as_the_machine_allows(
    threads: int,
    gpus: list[str],
    settings: dict[str, Any],
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
    run: Callable[..., Any],
) -> None:
    started: list[int] = []

    def none(num_workers: int) -> None:
        started.append(num_workers)
        raise ValueError("no workers")

    with_values(Path.cwd(), {"compute.threads": threads} | settings)
    for module in (parallel, repro):
        monkeypatch.setattr(module, "cores", lambda: 8)
        monkeypatch.setattr(module, "visible_gpus", lambda: gpus)
    monkeypatch.setattr(pool, "local", none)
    monkeypatch.setattr(repro.os, "execv", lambda *_: sys.exit(0))
    run("repro", "--jobs", "auto")
    assert started == ([expected] if expected else [])


def test_repro_notes_threads_that_share_cores(monkeypatch: pytest.MonkeyPatch, run) -> None:
    def none(num_workers: int) -> None:
        raise ValueError(f"{num_workers} workers")

    with_values(Path.cwd(), {"compute.threads": 2})
    monkeypatch.setattr(repro, "cores", lambda: 2)
    monkeypatch.setattr(repro, "visible_gpus", lambda: [])
    monkeypatch.setattr(pool, "local", none)
    note = run("repro", "--jobs", "2").err
    assert "2 jobs of 2 threads" in note and "compute.threads: 1" in note


# A second call.


@pytest.mark.slow
def test_lock_is_held_by_the_dvc_that_replaces_the_command() -> None:
    dvc = [sys.executable, "-c", "print(flush=True); input()"]
    call = f"from stages.commands import repro; repro._lock(); repro.os.execv({dvc[0]!r}, {dvc})"
    with subprocess.Popen(
        [sys.executable, "-c", call],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as first:
        assert first.stdout and first.stdout.readline()
        with pytest.raises(ValueError, match=rf"^another `make repro` .*`kill {first.pid}`"):
            LOCK()
        first.communicate(b"\n")
    LOCK()


# Another study.


def study_with(folder: Path, **changes: object) -> Path:
    """Writes another study into a file of its own."""
    folder.mkdir()
    (folder.parent / "requirements.lock").symlink_to(ROOT / "requirements.lock")  # a source
    return with_values(folder, changes).rename(folder / "mine.yaml")


def test_take_replaces_a_study_that_is_kept_elsewhere(tmp_path: Path) -> None:
    here, mine = tmp_path / "params.yaml", study_with(tmp_path / "other", study="mine")
    kept = tmp_path / "studies"
    kept.mkdir()
    (kept / "before.yaml").write_text(here.read_text())
    repro._take(mine)
    assert here.read_text() == mine.read_text() and load(here).study == "mine"
    # params.yaml as this command wrote it may be replaced, even after an edit of its source.
    mine.write_text(mine.read_text() + "# an edit\n")
    repro._take(mine)
    assert here.read_text() == mine.read_text()
    repro._take(kept / "before.yaml")
    assert here.read_text() == (kept / "before.yaml").read_text()


def test_take_loses_no_study_that_is_kept_nowhere_else(tmp_path: Path) -> None:
    here, mine = tmp_path / "params.yaml", study_with(tmp_path / "other", study="mine")
    here.write_text(before := here.read_text() + "# an edit\n")
    with pytest.raises(ValueError, match=r"^params\.yaml is neither.*keep it"):
        repro._take(mine)
    assert here.read_text() == before


def test_take_refuses_a_study_with_mistakes(tmp_path: Path) -> None:
    here, before = tmp_path / "params.yaml", (tmp_path / "params.yaml").read_text()
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "before.yaml").write_text(before)
    mine = study_with(tmp_path / "other", **{"finetune.label_budgets": [50, 50]})
    with pytest.raises(ValueError, match=r"^finetune\.label_budgets"):
        repro._take(mine)
    with pytest.raises(ValueError, match="--study"):
        repro._take(tmp_path / "none.yaml")
    assert here.read_text() == before
