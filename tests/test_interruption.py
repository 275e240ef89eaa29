"""A pretraining ends with its DVC and goes on later: real DVC on a real git repository."""

import os
import shutil
import signal
import subprocess
import time
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


def test_signal_saves_the_training(tmp_path: Path) -> None:
    """Ctrl-C reaches DVC and its stage, here of a pretraining that takes hours."""
    project = tiny_study(tmp_path / "project")
    project.edit("pretrain", "training", "num_steps", value=6_000_000)
    project.repro("record_inputs@models")
    states = project.folder / ".scratch/pretrain/encoder_mlm"
    dvc = subprocess.Popen(
        ["dvc", "repro", "--single-item", STAGE],
        cwd=project.folder,
        env=Project(project.folder, cold=True).environment | {"CHECKPOINT_SECONDS": "3"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while not any(states.glob("1/[!.]*.safetensors")):
            assert dvc.poll() is None, "it ended before it could be interrupted"
            time.sleep(0.01)
        (stage,) = psutil.Process(dvc.pid).children()
        shutil.rmtree(states)  # without a signal, the next state is saved three seconds later
        os.killpg(dvc.pid, signal.SIGINT)
        assert not psutil.wait_procs([stage], timeout=5)[1], "it has not ended"
    finally:
        if dvc.poll() is None:
            os.killpg(dvc.pid, signal.SIGKILL)
        dvc.wait()
    assert any(states.glob("1/[!.]*.safetensors"))
