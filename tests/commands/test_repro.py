"""Bad input to the command that runs a study; what it runs is shown in tests/scheduling."""

import socket
import sys
from pathlib import Path

import pytest

import stages.scheduling
from stages.commands import repro
from stages.core.parallel import cores
from stages.core.params import load
from tests.smoke import ROOT, with_values


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a study, where DVC has something to do and is never called."""
    monkeypatch.chdir(tmp_path)
    with_values(tmp_path, {"compute.threads": 1})
    monkeypatch.setattr(repro, "pending", lambda params: {"check_params": []})
    monkeypatch.setattr(repro, "REPRO", [sys.executable, "-c", "pass"])


def refusal(*arguments: str, monkeypatch, capsys) -> str:
    monkeypatch.setattr(sys, "argv", ["repro", *arguments])
    with pytest.raises(SystemExit) as ended:
        repro.main()
    assert ended.value.code == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize("jobs", ["0", "-3", "1.5", "some"])
def test_no_number_of_jobs(jobs, monkeypatch, capsys) -> None:
    said = refusal("--jobs", jobs, monkeypatch=monkeypatch, capsys=capsys)
    assert "--jobs" in said and jobs in said and "auto" in said


@pytest.mark.parametrize(
    ("threads", "gpus", "settings", "expected"),
    [
        (1, [], {}, 8),
        (3, [], {}, 2),
        (16, [], {}, 1),
        (1, ["0", "1"], {}, 2),
        (1, ["0", "1"], {"distributed.devices": 2}, 1),
        (4, ["0", "1"], {"compute.device": "cpu"}, 2),
    ],
)
def test_as_many_jobs_as_the_machine_allows(
    threads, gpus, settings, expected, monkeypatch, capsys
) -> None:
    from stages.scheduling import clusters

    started: list[int] = []

    def none(num_workers: int) -> None:
        started.append(num_workers)
        raise ValueError("no workers")

    with_values(Path.cwd(), {"compute.threads": threads} | settings)
    monkeypatch.setattr(repro, "cores", lambda: 8)
    monkeypatch.setattr(repro, "visible_gpus", lambda: gpus)
    monkeypatch.setattr(clusters, "local", none)
    monkeypatch.setattr(sys, "argv", ["repro", "--jobs", "auto"])
    monkeypatch.setattr(repro.os, "execv", lambda *_: sys.exit(0))
    with pytest.raises(SystemExit):
        repro.main()
    assert started == ([expected] if expected > 1 else [])


def test_auto_is_of_this_machine(monkeypatch, capsys) -> None:
    said = refusal("--jobs", "auto", "--cluster", "slurm", monkeypatch=monkeypatch, capsys=capsys)
    assert said.startswith("error: --jobs") and "cluster" in said


def test_more_jobs_than_cores(monkeypatch, capsys) -> None:
    said = refusal("--jobs", str(cores() + 1), monkeypatch=monkeypatch, capsys=capsys)
    assert said.startswith("error: --jobs") and said.endswith(str(cores()))


def test_threads_that_share_cores_are_noted(monkeypatch, capsys) -> None:
    from stages.scheduling import clusters

    with_values(Path.cwd(), {"compute.threads": 2})
    monkeypatch.setattr(repro, "cores", lambda: 2)
    monkeypatch.setattr(repro, "visible_gpus", lambda: [])

    def none(num_workers: int) -> None:
        raise ValueError(f"{num_workers} workers")

    monkeypatch.setattr(clusters, "local", none)
    monkeypatch.setattr(sys, "argv", ["repro", "--jobs", "2"])
    with pytest.raises(SystemExit):
        repro.main()
    said = capsys.readouterr().err
    assert "2 jobs of 2 threads" in said and "compute.threads: 1" in said


def test_an_unknown_batch_system(monkeypatch, capsys) -> None:
    said = refusal("--cluster", "slrum", monkeypatch=monkeypatch, capsys=capsys)
    assert "--cluster" in said and "slrum" in said and "slurm" in said


def test_a_batch_system_that_is_not_here(monkeypatch, capsys) -> None:
    monkeypatch.setenv("PATH", "")
    assert "sbatch" in refusal("--cluster", "slurm", monkeypatch=monkeypatch, capsys=capsys)


def test_a_batch_system_without_settings(tmp_path, monkeypatch, capsys) -> None:
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    said = refusal("--cluster", "slurm", monkeypatch=monkeypatch, capsys=capsys)
    assert "jobqueue.slurm.cores" in said


def test_a_scheduler_that_is_not_there(monkeypatch, capsys) -> None:
    from stages.scheduling import clusters

    monkeypatch.setattr(clusters, "PATIENCE_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    said = refusal("--scheduler", address, monkeypatch=monkeypatch, capsys=capsys)
    assert address in said and "dask scheduler" in said


def test_without_dask_one_line_says_what_is_missing(monkeypatch, capsys) -> None:
    monkeypatch.delitem(sys.modules, "stages.scheduling.clusters", raising=False)
    monkeypatch.delattr(stages.scheduling, "clusters", raising=False)
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    said = refusal("--jobs", "2", monkeypatch=monkeypatch, capsys=capsys)
    assert "dask_jobqueue" in said and "make setup" in said


def study_with(folder: Path, **changes: object) -> Path:
    """Another study in a file of its own."""
    folder.mkdir()
    (folder.parent / "requirements.lock").symlink_to(ROOT / "requirements.lock")  # it reads that
    return with_values(folder, changes).rename(folder / "mine.yaml")


def test_another_study_takes_the_place_of_one_that_is_kept(tmp_path) -> None:
    here, mine = tmp_path / "params.yaml", study_with(tmp_path / "other", study="mine")
    kept = tmp_path / "studies"
    kept.mkdir()
    (kept / "before.yaml").write_text(here.read_text())
    repro._take(mine)
    assert here.read_text() == mine.read_text() and load(here).study == "mine"
    # And over that, since this command wrote it and nobody has edited it.
    repro._take(kept / "before.yaml")
    assert here.read_text() == (kept / "before.yaml").read_text()


def test_a_study_that_is_edited_where_it_lies_is_taken_again(tmp_path) -> None:
    here, mine = tmp_path / "params.yaml", study_with(tmp_path / "studies", study="mine")
    here.unlink()
    repro._take(mine)
    mine.write_text(mine.read_text() + "# an edit\n")
    repro._take(mine)
    assert here.read_text() == mine.read_text()


def test_a_study_that_is_kept_nowhere_else_is_not_lost(tmp_path) -> None:
    here, mine = tmp_path / "params.yaml", study_with(tmp_path / "other", study="mine")
    here.write_text(before := here.read_text() + "# an edit\n")
    with pytest.raises(ValueError, match=r"^params\.yaml is neither.*keep it"):
        repro._take(mine)
    assert here.read_text() == before


def test_a_study_with_mistakes_takes_no_place(tmp_path) -> None:
    here, before = tmp_path / "params.yaml", (tmp_path / "params.yaml").read_text()
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "before.yaml").write_text(before)
    mine = study_with(tmp_path / "other", **{"finetune.label_budgets": [50, 50]})
    with pytest.raises(ValueError, match=r"^finetune\.label_budgets"):
        repro._take(mine)
    with pytest.raises(ValueError, match="--study"):
        repro._take(tmp_path / "none.yaml")
    assert here.read_text() == before
