"""The tables of trials: their columns, and reading and writing them as CSV files.

Rows about a trial have the fields of its ``TrialKey`` as columns. All values are texts or numbers.
An unknown number is an empty field in the file and ``None`` here.
"""

import csv
import gzip
import io
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, TypeVar, get_args, get_type_hints

from stages.core.artifacts import remove, replacing
from stages.core.keys import CheckpointKey, TrialKey
from stages.tasks._cells import Row

T = TypeVar("T")

CLASSICAL = "classical"  # the method of every baseline


@dataclass(frozen=True, kw_only=True)
class CheckpointRow:
    """A row about a checkpoint."""

    model: str  # or the name of a baseline, in params.yaml
    pretrain_seed: int

    @property
    def checkpoint(self) -> CheckpointKey:
        return CheckpointKey(self.model, self.pretrain_seed)


@dataclass(frozen=True, kw_only=True)
class TrialRow(CheckpointRow):
    """A row about a trial of a model or of a baseline."""

    task: str
    method: str
    label_budget: str  # a number, or "all"
    finetune_seed: int

    @property
    def key(self) -> TrialKey:
        return TrialKey(*(getattr(self, name) for name in TrialKey._fields))


@dataclass(frozen=True, kw_only=True)
class TrialRecord(TrialRow):
    """A trial without its scores on test rows.

    Defaults are the values of a baseline. It has its component's name as architecture, the method
    CLASSICAL and the seeds that drew its labelled rows. A method that fits nothing has the defaults
    in the columns about fitting. A public checkpoint has the objective "hub"; its corpus is its
    path, or the corpus on which a model continued its pretraining; the cost of its original
    pretraining is unknown. A lineage is a model with all its parents and teachers.
    """

    architecture: str
    objective: str = "none"
    corpus: str = "none"
    num_params: int = 0
    num_trained_params: int = 0
    pretrain_tokens: int | None = 0
    pretrain_flops: int | None = 0
    lineage_tokens: int | None = 0
    lineage_flops: int | None = 0
    finetune_flops: int = 0  # at all learning rates; for a solved probe, of the states of its rows
    lr: float = 0.0  # the best learning rate on validation; 0 if nothing was trained
    d_model: int = 0
    num_layers: int = 0
    best_epoch: int = 0
    weights_bytes: int | None = None  # size of the files needed for predictions
    num_pretrained_params: int = 0  # all of the checkpoint; num_params counts only the used ones
    used_architecture: str  # "encoder" if the decoder of an encoder_decoder is not used
    design: str | None = None  # equal for models whose states differ only because of their weights
    lineage_bytes: int | None = 0  # bytes of the text of lineage_tokens
    num_epochs: int = 0  # trained at the best rate; 0 if nothing was trained in steps
    num_steps: int = 0  # in ``num_epochs``; for a solved probe the iterations at all C
    last_train_loss: float | None = None  # mean of the last epoch; None without training
    best_is_last: int = 0  # 1 if the last epoch is the best on validation, even if another is kept
    chosen_in_warmup: int = 0  # 1 if the best epoch ended before the learning rate reached its peak
    still_improving: int = 0  # 1 if training ended too early (``trials/validation.py``)
    converged: int | None = None  # 1 if a solved probe reached a minimum at every C
    C: float | None = None  # the inverse strength of a solved probe's penalty
    num_tries: int = 1  # candidates for validation: learning rates or values of C
    at_edge: int | None = None  # 1 if the best rate or C is the smallest or largest of several
    temperature: float | None = None  # fitted on validation; None if that is impossible
    validation_score: float | None = None  # by the task's metric; None without validation

    @property
    def is_external(self) -> bool:
        """Whether the trial is of an external system, which learnt from no row of the study."""
        return self.method == CLASSICAL and self.num_tries == 0


@dataclass(frozen=True, kw_only=True)
class ScoredTrial(TrialRecord):
    """A trial and its score on the test set."""

    metric: str
    value: float
    other_metric: str
    other_value: float
    # None unless predictions have probabilities; see ``calibration.Calibration``.
    accuracy: float | None = None
    mean_probability: float | None = None
    calibration_error: float | None = None
    # None unless, in addition, there are two labels; see ``calibration.RareClass``.
    rare_class: str | None = None
    average_precision: float | None = None
    recall_at_precision: float | None = None


@dataclass(frozen=True, kw_only=True)
class PredictionRecord(TrialRow):
    """A prediction of a trial for a test row."""

    id: str  # of the row
    prediction: str
    probability: float | None = None  # that the prediction is right, if the model gives one
    calibrated: float | None = None  # ``probability`` at the trial's temperature, if any


@dataclass(frozen=True, kw_only=True)
class ValidationRecord(TrialRow):
    """A trial's prediction for a validation row, recorded if its predictions have probabilities."""

    probability: float  # of the prediction
    right: int  # 1 if the prediction is the row's answer


@dataclass(frozen=True, kw_only=True)
class EpochRecord(TrialRow):
    """One epoch of a trial at one learning rate."""

    lr: float
    epoch: int
    train_loss: float
    validation_metric: float
    validation_loss: float


@dataclass(frozen=True, kw_only=True)
class SkippedMethod:
    """A method that does not fit a model and therefore has no trials with it."""

    model: str
    method: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class InputRecord(CheckpointRow):
    """The rows and tokens of a split that a checkpoint reads, and the states that predict labels.

    For ``train``, ``rows`` is the largest label budget. ``tokens`` counts all tokens, including
    ``tokens_cut``, the ones that were cut off.
    """

    split: str
    read_at: str  # as Task.read_at
    rows: int
    rows_cut: int
    tokens: int
    tokens_cut: int


@dataclass(frozen=True, kw_only=True)
class CostRecord(TrialRow):
    """The cost of a trial and its speed of prediction, on the machine that ran it. The speed is
    measured only for the first fine-tuning seed."""

    wall_time_s: float
    peak_memory_bytes: int
    processor_time_s: float
    latency_s: float | None
    texts_per_s: float | None
    tokens_per_s: float | None
    hardware: str
    threads: int
    side_by_side: int  # number of trials that ran at once


def budget_order(label_budget: str) -> float:
    """Returns a key that sorts label budgets: numbers first, "all" last."""
    return math.inf if label_budget == "all" else float(label_budget)


def read(path: Path, kind: type[T]) -> list[T]:
    """Reads the rows of a CSV file (``.gz`` or not) as objects of the dataclass ``kind``.

    Raises ValueError if the file is missing.
    """
    types = {key: _parser(hint) for key, hint in get_type_hints(kind).items()}
    with _open(present(path), "r") as file:
        rows = csv.DictReader(file)
        absent = set(types) - set(rows.fieldnames or ())
        assert not absent, f"{path}: no columns {sorted(absent)}"
        return [kind(**{key: cast(row[key]) for key, cast in types.items()}) for row in rows]


def read_texts(path: Path) -> list[dict[str, str]]:
    """Reads the rows of a CSV file as texts; there are none if the file does not exist."""
    if not path.exists():
        return []
    with _open(path, "r") as file:
        return list(csv.DictReader(file))


def present(path: Path) -> Path:
    """Returns the path of a stage's output; raises ValueError if it does not exist."""
    if not path.exists():
        raise ValueError(f"{path}: missing; run `dvc repro`")
    return path


def _parser(hint: Any) -> Callable[[str], Any]:
    """Returns the function that converts a field's text to a value."""
    if not get_args(hint):
        return hint
    convert = get_args(hint)[0]  # the first of ``float | None``
    return lambda text: convert(text) if text else None


def write(path: Path, kind: type, rows: Iterable[Any]) -> None:
    """Writes rows of the dataclass ``kind`` to a CSV file, completely or not at all. Equal rows
    give equal bytes."""
    write_table(path, list(get_type_hints(kind)), map(asdict, rows))


def write_table(path: Path, columns: Iterable[str], rows: Iterable[Row]) -> None:
    rows = list(rows)
    with replacing(path) as temporary, _open(temporary, "w", gz=path.suffix == ".gz") as file:
        writer = csv.DictWriter(
            file,
            list(columns),
            lineterminator="\n",
            extrasaction="ignore",
            quoting=csv.QUOTE_NONNUMERIC if any(map(_breaks, rows)) else csv.QUOTE_MINIMAL,
        )
        writer.writeheader()
        writer.writerows(rows)


def _breaks(row: Row) -> bool:
    """Whether a text in the row has a carriage return. Python before 3.13 does not quote such a
    text, and reads the carriage return as the end of a row."""
    return any("\r" in value for value in row.values() if isinstance(value, str))


def discard_unlisted(folder: Path, listed: Iterable[str]) -> None:
    """Deletes the files and folders in ``folder`` that are not ``listed``. Names that begin with a
    dot are kept."""
    keep = set(listed)
    for path in sorted(folder.glob("*")):
        if path.name not in keep and not path.name.startswith("."):
            remove(path)


@contextmanager
def _open(path: Path, how: str, *, gz: bool | None = None) -> Iterator[IO[str]]:
    if not (path.suffix == ".gz" if gz is None else gz):
        with path.open(how, encoding="utf-8", newline="") as file:
            yield file
        return
    # The gzip header gets no time and no file name, so that equal rows give equal bytes.
    with (
        path.open(how + "b") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode=how + "b", mtime=0) as binary,
        io.TextIOWrapper(binary, encoding="utf-8", newline="") as file,
    ):
        yield file
