"""The store of trials: the results of each trial, under a hash of everything that they depend on.

``.scratch/trials/ADDRESS/`` holds a trial's records and, if they are kept, its weights. An entry is
written next to its place and renamed into it when whole, so any number of processes may write at
once. A damaged entry counts as missing.

The address covers the checkpoint, the prepared examples, the code, the method and its settings, the
label budget, the seeds, ``max_tokens``, the device and its precision, and the versions of the
libraries that compute. It does not cover the other runs, methods, label budgets and seeds of the
study, so adding one of these computes only its own trials. Like DVC, it does not cover the model of
the processor.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

from stages.core import paths
from stages.core.artifacts import Json, sha256, whole_contents, write_contents
from stages.core.code import code_hash
from stages.training.checkpoint import WEIGHTS
from stages.training.device import Device
from stages.trials.setup import TrialSetup

VARIABLE = "TRIALS_STORE"
UNFINISHED = ".unfinished-"  # prefix of writers' folders; only killed writers leave them behind
LIBRARIES = ("torch", "transformers", "peft", "scikit-learn", "numpy")


def root() -> Path:
    """Returns the folder of the store: one that several clones share, or this clone's own."""
    shared = os.environ.get(VARIABLE)
    return Path(shared).expanduser() if shared else paths.SCRATCH / "trials"


def inputs_of(setup: TrialSetup, device: Device) -> Json:
    """Returns what all results that are computed from a checkpoint and a task depend on."""
    task = ("task.json", "train.jsonl", "validation.jsonl", "test.jsonl")
    model, kind = setup.run_record["model"], setup.task_record["task"]
    return {
        "run": setup.checkpoint.run,
        "pretrain_seed": setup.checkpoint.pretrain_seed,
        "task": setup.task_name,
        "checkpoint": setup.run_record["fingerprint"],
        "weights": sha256(setup.pretrained / WEIGHTS, setup.pretrained / "metrics.json"),
        "tokenizer": setup.run_record["tokenizer"],
        "examples": sha256(*(setup.examples / name for name in task)),
        "components": [f"models/{model['name']}", f"tasks/{kind['name']}"],
        "max_tokens": setup.max_tokens,
        "device": device.describe(),
        "libraries": {name: version(name) for name in LIBRARIES},
    }


def address_of(inputs: Json, settings: Json, *modules: str) -> str:
    """Returns the address of the result that ``modules`` compute with ``settings`` from the
    ``inputs_of`` a checkpoint and a task."""
    code = code_hash(*modules, *inputs["components"])
    depends_on = inputs | settings | {"modules": modules, "code": code}
    return hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()


def find(address: str) -> Path | None:
    """Returns the folder of an entry, or None if there is none or if it is damaged."""
    folder = root() / address
    return None if whole_contents(folder) is None else folder


@contextmanager
def new_entry(address: str) -> Iterator[Path]:
    """Yields an empty folder to fill, which then replaces the entry with this address. Of several
    processes that write one entry at once, the last wins."""
    folder, entry = root() / f"{UNFINISHED}{uuid4().hex}", root() / address
    folder.mkdir(parents=True)
    try:
        yield folder
        write_contents(folder)
        while folder.exists():
            shutil.rmtree(entry, ignore_errors=True)
            try:
                folder.rename(entry)
            except OSError as error:  # another process was faster
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
