"""The store of trials: what each left behind, under the address of all that it depends on.

``.scratch/trials/ADDRESS/`` holds a trial's records and, if they are kept, its weights. An entry is
written beside its place and renamed into it when whole, so any number of processes may write at
once; whoever comes second finds the same content there. What is damaged counts as missing.

The address covers the checkpoint, the prepared examples, the code, the method and its settings, the
label budget, the seed, ``max_tokens`` and the arithmetic. It does not cover the other methods,
label budgets and seeds of the study: adding one computes what is new.
"""

import errno
import gzip
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import mkdtemp

from stages.core import paths
from stages.core.artifacts import Json, read_json, sha256, write_json
from stages.core.code import code_hash
from stages.core.params import Params
from stages.evaluation import records
from stages.training.checkpoint import WEIGHTS
from stages.training.device import Device
from stages.trials.outcome import Outcome, TrialKey
from stages.trials.setup import TrialSetup

OUTCOME = "outcome.json.gz"
CONTENTS = "contents.json"  # the hash of each file of an entry
UNFINISHED = ".unfinished-"  # folders of writers, left behind only by those that were killed


def root() -> Path:
    """Where entries lie: a folder that several clones share, or one of this clone."""
    return Path(os.environ.get("TRIALS_STORE") or paths.SCRATCH / "trials")


class Addresses:
    """The addresses of the trials of a run and a task."""

    def __init__(self, params: Params, setup: TrialSetup, device: Device) -> None:
        self._params = params
        task = ("task.json", "train.jsonl", "validation.jsonl", "test.jsonl")
        self._shared = {
            "run": setup.run_key,
            "task": setup.task_key,
            "checkpoint": setup.run_record["fingerprint"],
            "weights": sha256(setup.pretrained / WEIGHTS, setup.pretrained / "metrics.json"),
            "tokenizer": setup.run_record["tokenizer"],
            "examples": sha256(*(setup.examples / name for name in task)),
            "max_tokens": setup.max_tokens,
            "device": device.describe(),
        }

    def of(self, key: TrialKey) -> str:
        entry = self._params.finetune.methods[key.method]
        depends_on = self._shared | {
            "trial": asdict(key),
            "method": entry.model_dump(),
            "code": code_hash("finetune", f"methods/{entry.method['name']}"),
        }
        return hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Stored:
    """A whole entry."""

    outcome: Outcome
    weights: Path | None  # the file with them, if they are kept


def load(address: str, *, with_weights: bool = False, with_speed: bool = False) -> Stored | None:
    """The entry; None if there is none, if it is damaged, or if it lacks what is asked for."""
    folder = root() / address
    try:
        contents = read_json(folder / CONTENTS)
        if any(sha256(folder / name) != value for name, value in contents.items()):
            return None
        with gzip.open(folder / OUTCOME, "rt", encoding="utf-8") as file:
            outcome = _outcome(json.load(file))
    except (OSError, EOFError, ValueError, TypeError, KeyError, AttributeError):
        return None
    weights = next((folder / name for name in contents if name != OUTCOME), None)
    with suppress(OSError):  # of another user, whose store may be read
        os.utime(folder)
    if (with_weights and weights is None) or (with_speed and outcome.cost.latency_s is None):
        return None
    return Stored(outcome, weights)


@contextmanager
def entry(address: str) -> Iterator[Path]:
    """A folder in which the trial leaves its weights and, with ``save``, its records; afterwards it
    is the entry. One that was there, damaged or without what is asked for now, is replaced."""
    root().mkdir(parents=True, exist_ok=True)
    folder = Path(mkdtemp(prefix=UNFINISHED, dir=root()))
    try:
        yield folder
        contents = {file.name: sha256(file) for file in sorted(folder.iterdir())}
        write_json(folder / CONTENTS, contents)
        _put(folder, root() / address)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _put(folder: Path, place: Path) -> None:
    """Rename ``folder`` to ``place``; a folder that is there, whoever wrote it, goes."""
    while True:
        try:
            folder.rename(place)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            aside = Path(mkdtemp(prefix=UNFINISHED, dir=root()))
            with suppress(FileNotFoundError):  # another process was faster
                place.rename(aside / "entry")
            shutil.rmtree(aside, ignore_errors=True)
        else:
            return


def save(outcome: Outcome, folder: Path) -> None:
    """Write the records of a trial into its ``entry``."""
    with gzip.GzipFile(folder / OUTCOME, "wb", mtime=0) as file:
        file.write(json.dumps(asdict(outcome)).encode())


def _outcome(found: Json) -> Outcome:
    return Outcome(
        trial=records.TrialRecord(**found["trial"]),
        epochs=[records.EpochRecord(**each) for each in found["epochs"]],
        predictions=[records.PredictionRecord(**each) for each in found["predictions"]],
        cost=records.CostRecord(**found["cost"]),
    )


@dataclass(frozen=True)
class Listed:
    """An entry, or what a killed writer left."""

    folder: Path
    run: str  # "" of what cannot be read
    task: str
    num_bytes: int
    unused_s: float  # seconds since it was last read or written


def listed() -> list[Listed]:
    """All that the store holds."""
    found = []
    for folder in root().iterdir() if root().is_dir() else ():
        try:
            files = [file.stat().st_size for file in folder.iterdir()]
            unused = time.time() - folder.stat().st_mtime
        except FileNotFoundError:  # a writer has just finished
            continue
        try:
            with gzip.open(folder / OUTCOME, "rt", encoding="utf-8") as file:
                trial = json.load(file)["trial"]
            names = trial["run"], trial["task"]
        except (OSError, EOFError, ValueError, KeyError):
            names = "", ""
        found.append(Listed(folder, *names, sum(files), max(unused, 0.0)))
    return found


def discard(entries: Iterable[Listed]) -> None:
    for each in entries:
        shutil.rmtree(each.folder, ignore_errors=True)
