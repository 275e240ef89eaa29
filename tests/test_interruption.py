"""A study that is killed goes on: real DVC on a real git repository."""

import signal
import subprocess
import time

from tests.project import clone_of_working_tree


def test_killed_in_the_middle_it_ends_as_if_it_had_not_been(tmp_path) -> None:
    """kill -9 of DVC alone takes its stage along; the weights are those of a run in one go."""
    project = clone_of_working_tree(tmp_path / "project")
    project.environment["CHECKPOINT_SECONDS"] = "0"
    project.edit("pretrain", "encoder_mlm", "training", "num_steps", value=100)
    stage, model = "pretrain@encoder_mlm", "data/pretrained/encoder_mlm/model.safetensors"
    project.repro("encode_corpus")
    running = subprocess.Popen(
        ["dvc", "repro", stage],
        cwd=project.folder,
        env=project.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    saved = project.folder / ".scratch/pretrain/encoder_mlm"
    while not (saved.is_dir() and any(saved.glob("[!.]*"))):
        assert running.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert not (project.folder / model).exists()
    assert project.repro(stage) == [stage]
    assert not saved.exists()
    resumed = (project.folder / model).read_bytes()
    assert project.repro("--force", "--single-item", stage) == [stage]
    assert (project.folder / model).read_bytes() == resumed
