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
import gzip
import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import mkdtemp

from stages.core import paths
from stages.core.artifacts import Json, sha256, whole_contents, write_contents
from stages.core.code import code_hash
from stages.core.keys import TrialKey
from stages.core.params import Finetune
from stages.training.checkpoint import WEIGHTS
from stages.training.device import Device
from stages.trials.outcome import OUTCOME_TYPE, Outcome
from stages.trials.setup import TrialSetup

VARIABLE = "TRIALS_STORE"
OUTCOME = "outcome.json.gz"
UNFINISHED = ".unfinished-"  # prefix of writers' folders; only killed writers leave them behind
LIBRARIES = ("torch", "transformers", "peft", "scikit-learn", "numpy")


def root() -> Path:
    """Returns the folder of the store: one that several clones share, or this clone's own."""
    shared = os.environ.get(VARIABLE)
    return Path(shared).expanduser() if shared else paths.SCRATCH / "trials"


def check_writable() -> None:
    """Raises ValueError if no entry can be written."""
    with _clear_errors():
        root().mkdir(parents=True, exist_ok=True)
        _new_folder().rmdir()


@contextmanager
def _clear_errors() -> Iterator[None]:
    """Re-raises file-system errors (disk full, permission denied) as ValueError."""
    try:
        yield
    except OSError as error:
        place = f"{VARIABLE}: {root()}" if os.environ.get(VARIABLE) else f"{root()}"
        reason = error.strerror or error
        raise ValueError(f"{place}: the store of trials cannot be written: {reason}") from None


class Addresses:
    """The addresses of the trials of a checkpoint and a task."""

    def __init__(self, finetune: Finetune, setup: TrialSetup, device: Device) -> None:
        self._finetune = finetune
        task = ("task.json", "train.jsonl", "validation.jsonl", "test.jsonl")
        model, kind = setup.run_record["model"], setup.task_record["task"]
        self._components = f"models/{model['name']}", f"tasks/{kind['name']}"
        self._shared = {
            "run": setup.checkpoint.run,
            "pretrain_seed": setup.checkpoint.pretrain_seed,
            "task": setup.task_name,
            "checkpoint": setup.run_record["fingerprint"],
            "weights": sha256(setup.pretrained / WEIGHTS, setup.pretrained / "metrics.json"),
            "tokenizer": setup.run_record["tokenizer"],
            "examples": sha256(*(setup.examples / name for name in task)),
            "max_tokens": setup.max_tokens,
            "device": device.describe(),
            "libraries": {name: version(name) for name in LIBRARIES},
        }

    def of(self, key: TrialKey) -> str:
        """Returns the address of a trial."""
        entry = self._finetune.methods[key.method].of(key.run)
        components = [f"methods/{entry.method['name']}", *self._components]
        if entry.training:
            components.append(f"optimizers/{entry.training.optimizer['name']}")
        depends_on = self._shared | {
            "trial": key._asdict(),
            "method": entry.model_dump(exclude={"only"}),
            "code": code_hash("trials/runner", *components),
        }
        return _hash(depends_on)

    def of_other(self, settings: Json, module: str) -> str:
        """Returns the address of the result that ``module`` computes with ``settings`` from the
        checkpoint and the examples."""
        code = code_hash(module, *self._components)
        return _hash(self._shared | {"settings": settings, "module": module, "code": code})


def _hash(depends_on: Json) -> str:
    return hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Stored:
    """A whole entry: the outcome of a trial, and its weights."""

    outcome: Outcome
    weights: Path | None  # the file of the weights, if they are kept

    @property
    def has_speed(self) -> bool:
        return self.outcome.cost.latency_s is not None


def load(address: str, *, with_weights: bool = False, with_speed: bool = False) -> Stored | None:
    """Returns the entry, or None if there is none, if it is damaged, or if it lacks the required
    weights or speed."""
    entry = _entry(root() / address)
    if entry is None:
        return None
    if (with_weights and not entry.weights) or (with_speed and not entry.has_speed):
        return None
    return entry


def _entry(folder: Path) -> Stored | None:
    """Returns an entry, or None if it is not whole."""
    try:
        contents = whole_contents(folder)
        if contents is None or OUTCOME not in contents:
            return None
        with gzip.open(folder / OUTCOME, "rb") as file:
            outcome = OUTCOME_TYPE.validate_json(file.read())
    except (OSError, EOFError, ValueError, zlib.error):
        return None
    weights = next((folder / name for name in contents if name != OUTCOME), None)
    return Stored(outcome, weights)


@contextmanager
def unfinished() -> Iterator[Path]:
    """Yields a folder for the weights of a trial. ``save`` turns it into an entry; otherwise it is
    deleted at the end."""
    with _clear_errors():
        folder = _new_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _new_folder() -> Path:
    """Makes a folder with the usual permissions of this process; ``mkdtemp`` makes private ones."""
    folder = Path(mkdtemp(prefix=UNFINISHED, dir=root()))
    umask = os.umask(0)
    os.umask(umask)
    folder.chmod(0o777 & ~umask)
    return folder


def save(address: str, outcome: Outcome, folder: Path) -> None:
    """Turns ``folder``, which has the weights if they are kept, into the entry of a trial. Weights
    and speed of an earlier entry are kept.

    Raises ValueError if the entry cannot be written.
    """
    place = root() / address
    with _clear_errors():
        if earlier := _entry(place):
            if earlier.has_speed:
                outcome = replace(outcome, cost=earlier.outcome.cost)
            if earlier.weights and not any(folder.iterdir()):
                shutil.copyfile(earlier.weights, folder / earlier.weights.name)
        with gzip.GzipFile(folder / OUTCOME, "wb", mtime=0) as file:
            file.write(json.dumps(asdict(outcome)).encode())
        write_contents(folder)
        _put(folder, place)


def _put(folder: Path, place: Path) -> None:
    """Renames ``folder`` to ``place``, and replaces any folder there."""
    while True:
        try:
            folder.rename(place)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            aside = _new_folder()
            with suppress(FileNotFoundError):  # another process was faster
                place.rename(aside / "entry")
            shutil.rmtree(aside, ignore_errors=True)
        else:
            return
