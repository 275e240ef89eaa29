"""A pretraining ends with its DVC and goes on later: real DVC on a real git repository."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.project import Project, tiny_study

pytestmark = pytest.mark.slow

STAGE = "pretrain@encoder_mlm"
OUTPUTS = ("pretrained", "progress/history", "progress/rates", "progress/samples")


def test_killed_pretraining_ends_as_if_it_had_not_been_killed(tmp_path: Path) -> None:
    """``kill -9`` of DVC alone, at the second learning rate of the second seed, ends its stage too.
    The weights, histories and samples of all seeds are those of an uninterrupted run, and the first
    seed is not trained again."""
    project = tiny_study(tmp_path / "project")
    as_a_user = Project(project.folder, cold=True)
    as_a_user.environment["CHECKPOINT_SECONDS"] = "0"
    project.edit("pretrain", "seeds", value=[1, 2])
    project.edit("pretrain", "training", "num_steps", value=24)
    project.edit("pretrain", "training", "lr", value=[1e-3, 3e-3])
    project.repro("record_inputs@models")

    def outputs() -> dict[Path, bytes]:
        folders = (project.folder / "data" / name / "encoder_mlm" for name in OUTPUTS)
        return {f: f.read_bytes() for folder in folders for f in folder.rglob("*") if f.is_file()}

    running = subprocess.Popen(
        ["dvc", "repro", STAGE],
        cwd=project.folder,
        env=as_a_user.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    states = project.folder / ".scratch/pretrain/encoder_mlm"
    while not any(states.glob("2/1/[!.]*.safetensors")):
        assert running.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert outputs() == {}
    store = project.folder / ".scratch/checkpoints"
    (first,) = store.iterdir()
    trained_at = first.stat().st_mtime_ns
    assert project.repro(STAGE) == [STAGE]
    assert first.stat().st_mtime_ns == trained_at
    assert not any(states.rglob("*.safetensors"))
    resumed = outputs()
    assert {file.parent.name for file in resumed if file.name == "model.safetensors"} == {"1", "2"}
    for entry in store.iterdir():
        entry.rename(entry.with_name(f"not-{entry.name}"))
    assert project.repro("--force", "--single-item", STAGE) == [STAGE]
    assert outputs() == resumed


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A study whose pretraining takes hours, with all its inputs."""
    project = tiny_study(tmp_path_factory.mktemp("endless") / "project")
    project.edit("pretrain", "training", "num_steps", value=6_000_000)
    project.repro("record_inputs@models")
    return Project(project.folder, cold=True)


def until(holds: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.01)


@contextmanager
def pretraining(
    project: Project, **variables: str
) -> Iterator[tuple[subprocess.Popen[bytes], psutil.Process]]:
    """Yields the processes of DVC and of its stage, which has begun."""
    dvc = subprocess.Popen(
        ["dvc", "repro", "--single-item", STAGE],
        cwd=project.folder,
        env=project.environment | variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    stages = list[psutil.Process]()

    def has_begun() -> bool:
        stages[:] = psutil.Process(dvc.pid).children()
        return any("stages.pretrain" in " ".join(stage.cmdline()) for stage in stages)

    try:
        until(has_begun)
        yield dvc, stages[0]
    finally:
        if dvc.poll() is None:
            os.killpg(dvc.pid, signal.SIGKILL)
        dvc.wait()
        for stage in stages:
            if stage.is_running():
                stage.kill()


def ends(stage: psutil.Process) -> bool:
    """Returns whether a process ends within five seconds."""
    return not psutil.wait_procs([stage], timeout=5)[1]


def test_stage_ends_with_a_killed_dvc(endless: Project) -> None:
    with pretraining(endless) as (dvc, stage):
        dvc.kill()
        assert ends(stage)


def test_signal_saves_the_training(endless: Project) -> None:
    """Ctrl-C reaches DVC and its stage."""
    states = endless.folder / ".scratch/pretrain/encoder_mlm"
    shutil.rmtree(states, ignore_errors=True)
    with pretraining(endless, CHECKPOINT_SECONDS="3") as (dvc, stage):
        until(lambda: any(states.glob("1/[!.]*.safetensors")))
        shutil.rmtree(states)  # without a signal, the next state is saved three seconds later
        os.killpg(dvc.pid, signal.SIGINT)
        assert ends(stage)
    assert any(states.glob("1/[!.]*.safetensors"))
