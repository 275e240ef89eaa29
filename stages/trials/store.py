"""The store of trials: the results of each trial, under a hash of everything that they depend on.

``.scratch/trials/ADDRESS/`` holds a trial's records and, if they are kept, its weights. An entry is
written next to its place and renamed into it when whole. A damaged entry counts as missing.

The address covers the checkpoint, the prepared examples, the code, the method and its settings, the
label budget, the seeds, ``max_tokens``, the device and its precision, and the versions of the
libraries that compute. It does not cover the other models, methods, label budgets and seeds of the
study, so adding one of these computes only its own trials. Like DVC, it does not cover the model of
the processor.
"""

import gzip
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.metadata import version

from pydantic import TypeAdapter

from stages.core import paths
from stages.core.artifacts import replacing, sha256, whole_contents, write_contents
from stages.core.code import code_hash
from stages.core.keys import TrialKey
from stages.core.params import Compute, Finetune
from stages.training.checkpoint import WEIGHTS
from stages.training.device import resolve
from stages.trials.kept import file_name
from stages.trials.runner import Trial, TrialRunner, is_first_seed, keeps_weights
from stages.trials.setup import TrialSetup

ROOT = paths.SCRATCH / "trials"
RECORDS = "trial.json.gz"  # in an entry
LIBRARIES = ("torch", "transformers", "peft", "scikit-learn", "numpy")
TRIAL_TYPE = TypeAdapter(Trial)  # to read trials from JSON


def addresses_of(
    finetune: Finetune, compute: Compute, setup: TrialSetup, groups: Iterable[Sequence[TrialKey]]
) -> dict[TrialKey, str]:
    """Returns the address of each trial of a checkpoint and a task, in the order of the groups."""
    files = ("task.json", "train.jsonl", "validation.jsonl", "test.jsonl")
    model, kind = setup.run_record["model"], setup.task_record["task"]
    of_all = {
        "checkpoint": setup.run_record["fingerprint"],
        "weights": sha256(setup.pretrained / WEIGHTS, setup.pretrained / "metrics.json"),
        "tokenizer": setup.run_record["tokenizer"],
        "examples": sha256(*(setup.examples / name for name in files)),
        "max_tokens": setup.max_tokens,
        "device": resolve(compute, threads=compute.trial_threads).describe(),
        "libraries": {name: version(name) for name in LIBRARIES},
    }
    addresses = dict[TrialKey, str]()
    for key in (key for group in groups for key in group):
        entry = finetune.methods[key.method].of(key.model)
        modules = ["trials/runner", f"methods/{entry.method['name']}"]
        modules += [f"models/{model['name']}", f"tasks/{kind['name']}"]
        if entry.training:
            modules.append(f"optimizers/{entry.training.optimizer['name']}")
        of_trial = {"trial": key._asdict(), "method": entry.model_dump(exclude={"only"})}
        depends_on = of_all | of_trial | {"modules": modules, "code": code_hash(*modules)}
        encoded = json.dumps(depends_on, sort_keys=True).encode()
        addresses[key] = hashlib.sha256(encoded).hexdigest()
    return addresses


def stored(finetune: Finetune, key: TrialKey, address: str) -> Trial | None:
    """Returns the trial from the store, or None if the store lacks the trial, or its weights or
    speed if the study needs them."""
    entry = ROOT / address
    files = whole_contents(entry)
    if files is None or (keeps_weights(finetune, key) and file_name(key) not in files):
        return None
    trial = TRIAL_TYPE.validate_json(gzip.decompress((entry / RECORDS).read_bytes()))
    lacks_speed = is_first_seed(finetune, key) and trial.cost.latency_s is None
    return None if lacks_speed else trial


def run_and_store(runner: TrialRunner, key: TrialKey, address: str) -> Trial:
    """Runs a trial and makes it the entry with this address."""
    with replacing(ROOT / address) as folder:
        folder.mkdir()
        trial = runner.run(key, folder)
        with gzip.GzipFile(folder / RECORDS, "wb", mtime=0) as file:
            file.write(json.dumps(asdict(trial)).encode())
        write_contents(folder)
    return trial
