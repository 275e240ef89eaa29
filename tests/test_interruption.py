"""A study that is killed goes on: real DVC on a real git repository."""

import signal
import subprocess
import time

import pytest

from tests.project import Project, clone_of_working_tree
from tests.small import VOCAB_SIZE, documents

pytestmark = pytest.mark.slow

RESULTS = (
    "pretrained/decoder_causal/model.safetensors",
    "progress/history/decoder_causal.csv",
    "progress/rates/decoder_causal.csv",
    "progress/samples/decoder_causal.jsonl",
)


def test_killed_in_the_middle_it_ends_as_if_it_had_not_been(tmp_path) -> None:
    """kill -9 of DVC alone takes its stage along; the weights, the histories and the
    samples are those of a run in one go. It is killed at the second of its learning rates."""
    project = clone_of_working_tree(tmp_path / "project")
    as_a_user = Project(project.folder, cold=True)
    as_a_user.environment["CHECKPOINT_SECONDS"] = "0"
    text = "\n\n".join("\n".join(lines) for lines in documents())
    (project.folder / "topics.txt").write_text(text, encoding="utf-8")
    project.edit("corpora", "prose", "source", value={"name": "files", "path": "topics.txt"})
    project.edit("tokenizers", "unigram", "vocab_size", value=VOCAB_SIZE)
    project.edit("pretrain", "decoder_causal", "training", "num_steps", value=24)
    project.edit("pretrain", "decoder_causal", "training", "lr", value=[1e-3, 3e-3])
    stage = "pretrain@decoder_causal"
    files = [project.folder / "data" / name for name in RESULTS]

    def results() -> list[bytes]:
        return [file.read_bytes() for file in files]

    project.repro("encode_corpus")
    running = subprocess.Popen(
        ["dvc", "repro", stage],
        cwd=project.folder,
        env=as_a_user.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    saved = project.folder / ".scratch/pretrain/decoder_causal"
    while not (saved.is_dir() and any(saved.glob("[!.]*.1.safetensors"))):
        assert running.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert not any(file.exists() for file in files)
    assert project.repro(stage) == [stage]
    assert not saved.exists()
    resumed = results()
    assert all(resumed)
    assert project.repro("--force", "--single-item", stage) == [stage]
    assert results() == resumed
