"""The command that runs a study: its jobs, its refusals and the study that it puts in place.
tests/scheduling has the runs themselves."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--jobs", "some"], ["--jobs", "some"]),
        (["--jobs", "auto", "--cluster", "slurm"], ["error: --jobs", "cluster"]),
        (["--jobs", str(cores() + 1)], ["error: --jobs", str(cores())]),
        (["--jobs", "1", "--cluster", "slurm"], ["sbatch"]),
        (["--scheduler", "tcp://127.0.0.1:1"], ["tcp://127.0.0.1:1", "dask scheduler"]),
    ],
)
def test_repro_refuses_workers_that_cannot_be_had(
    arguments: list[str], words: list[str], run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "PATIENCE_S", 1)
    ended = run("repro", *arguments)
    assert ended.status == 2 and all(word in ended.err for word in words)


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
    run,
) -> None:
    started: list[int] = []

    def none(num_workers: int, *_: object) -> None:
        started.append(num_workers)
        raise ValueError("no workers")

    with_values(Path.cwd(), {"compute.threads": threads} | settings)
    monkeypatch.setattr(parallel, "cores", lambda: 8)
    monkeypatch.setattr(parallel, "visible_gpus", lambda: gpus)
    monkeypatch.setattr(pool, "workers", none)
    monkeypatch.setattr(repro.os, "execv", lambda *_: sys.exit(0))
    run("repro", "--jobs", "auto")
    assert started == ([expected] if expected else [])


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


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """Another study, in a file of its own."""
    (tmp_path / "other").mkdir()
    (tmp_path / "requirements.lock").symlink_to(ROOT / "requirements.lock")  # a source
    file = with_values(tmp_path / "other", {"study": "mine"})
    return file.rename(tmp_path / "other" / "mine.yaml")


def test_take_replaces_a_study_that_is_kept_elsewhere(tmp_path: Path, mine: Path) -> None:
    here, kept = tmp_path / "params.yaml", tmp_path / "studies"
    kept.mkdir()
    (kept / "before.yaml").write_text(here.read_text())
    repro._take(mine)
    assert here.read_text() == mine.read_text() and load(here).study == "mine"
    # params.yaml as this command wrote it may be replaced, even after an edit of its source.
    mine.write_text(mine.read_text() + "# an edit\n")
    repro._take(mine)
    assert here.read_text() == mine.read_text()


def test_take_loses_no_study_that_is_kept_nowhere_else_and_takes_no_mistakes(
    tmp_path: Path, mine: Path
) -> None:
    here = tmp_path / "params.yaml"
    here.write_text(before := here.read_text() + "# an edit\n")
    with pytest.raises(ValueError, match=r"^params\.yaml is neither.*keep it"):
        repro._take(mine)
    mine.write_text(mine.read_text().replace("causal\n", "casual\n"))
    with pytest.raises(ValueError, match=r"objective\.name: unknown 'casual'"):
        repro._take(mine)
    with pytest.raises(ValueError, match="--study"):
        repro._take(tmp_path / "none.yaml")
    assert here.read_text() == before
