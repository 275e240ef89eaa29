"""The paths that stages write and read, relative to the root of the repository."""

import re
from pathlib import Path

from stages.core.keys import CheckpointKey

DATA = Path("data")
PLANS = DATA / "plans"  # written by the root stage: the settings and the code of each stage
CHECKPOINTS = DATA / "checkpoints"  # public checkpoints from packages of the package index
CORPORA = DATA / "corpora"
TOKENIZERS = DATA / "tokenizers"
ENCODED = DATA / "encoded"
INPUTS = DATA / "inputs"  # hashes of the files that each corpus and each model reads
CONTAMINATION = DATA / "contamination"
TASKS = DATA / "tasks"
PRETRAINED = DATA / "pretrained"
PROGRESS = DATA / "progress"  # written by pretraining, read by the report alone
BASELINES = DATA / "baselines"
FINETUNED = DATA / "finetuned"
EVALUATED = DATA / "evaluated"
TIMINGS = DATA / "timings"  # measured by pretraining and fine-tuning; depends on the machine
REPORTS = Path("reports")
SCRATCH = Path(".scratch")  # outside DVC: locks, states of interrupted processes, caches

ON_THE_HUB = re.compile(r"[\w.-]+(/[\w.-]+)?")  # names of models and data sets
COMMIT = re.compile(r"[0-9a-f]{40}")


def pretrained(checkpoint: CheckpointKey) -> Path:
    """Returns the folder with the weights, the tokenizer and the record of a checkpoint."""
    return PRETRAINED / checkpoint.model / str(checkpoint.pretrain_seed)


def pretraining_time(checkpoint: CheckpointKey) -> Path:
    return TIMINGS / "pretrain" / checkpoint.model / f"{checkpoint.pretrain_seed}.json"


def progress(checkpoint: CheckpointKey, kind: str) -> Path:
    """Returns the file of a pretraining; ``kind`` is ``history``, ``rates`` or ``samples``."""
    suffix = ".jsonl" if kind == "samples" else ".csv"
    return PROGRESS / kind / checkpoint.model / f"{checkpoint.pretrain_seed}{suffix}"


def examples(task: str) -> Path:
    """Returns the folder with a task's rows, without the labels of test, and its task.json."""
    return TASKS / task / "examples"


def test_labels(task: str) -> Path:
    return TASKS / task / "test_labels.jsonl"


def test_originals(task: str) -> Path:
    """Returns the file with the original texts of the test rows that the task's source changed."""
    return TASKS / task / "test_originals.jsonl"
