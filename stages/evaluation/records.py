"""The table of trials: its columns, and CSV files of them.

A trial is one (run or baseline, task, method, label budget, seed). Everything in a file is text or
a number; a field is empty only where nobody knows the number: ``None`` here.
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
from stages.kinds._cells import Row

T = TypeVar("T")

CLASSICAL = "classical"  # the method of every baseline
SEPARATOR = ", "  # between the settings of a read_out


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """What was trained. A baseline has the architecture of its name, method CLASSICAL, corpus
    and objective "none", the seeds whose labelled rows it learnt from, and zeros. A public
    checkpoint has objective "hub" and as corpus its path, or what it was pretrained on further;
    what its own pretraining took is not known. A lineage is a run with all that it came from: its
    parents and teachers."""

    run: str
    architecture: str
    objective: str
    method: str
    task: str
    corpus: str
    pretrain_seed: int
    finetune_seed: int
    label_budget: str  # a number, or "all"
    num_params: int
    num_trained_params: int
    pretrain_tokens: int | None
    pretrain_flops: int | None
    lineage_tokens: int | None
    lineage_flops: int | None
    finetune_flops: int  # of all tries
    lr: float  # the one that was best on validation; 0 if nothing was trained
    d_model: int
    num_layers: int
    best_epoch: int
    weights_bytes: int | None  # what is kept to use it; a baseline's are not stored
    num_pretrained_params: int  # of the checkpoint; num_params are those that the trial uses
    used_architecture: str  # "encoder" where the decoder of an encoder_decoder is not used
    design: str | None  # equal where two models compute states alike, but for their weights
    lineage_bytes: int | None  # of the text that lineage_tokens are
    num_epochs: int  # trained at the rate that was kept; 0 if nothing was trained by steps
    num_steps: int  # of these epochs; the iterations of all tries if it was solved
    last_train_loss: float | None  # the mean of the last epoch; at the minimum if it was solved
    best_is_last: int  # 1 if the last epoch is the best on validation, whichever is kept
    chosen_in_warmup: int  # 1 if the best epoch ended before the learning rate was at its highest
    still_improving: int  # 1 if training ended too early (``trials/best_epoch.py``)
    converged: int | None  # 1 if every try of a solved probe came to a minimum
    C: float | None  # the inverse strength of a solved probe's penalty
    num_tries: int  # what validation chose from: variants, each at every learning rate or C
    at_edge: int | None  # 1 if the rate or C that was kept is the smallest or largest of several
    # Settings of task and method that validation chose: "pooling=last, dropout=0.1". "" where a
    # single value was tried, whichever it is, and of a baseline.
    read_out: str = ""
    initial_weights: str = ""  # that validation chose; "" unless from scratch


@dataclass(frozen=True, kw_only=True)
class ScoredTrial(TrialRecord):
    """A trial and its score on the test set."""

    metric: str
    value: float
    other_metric: str
    other_value: float
    # Of trials whose predictions have probabilities; see ``calibration.Calibration``.
    accuracy: float | None = None
    mean_probability: float | None = None
    calibration_error: float | None = None


@dataclass(frozen=True, kw_only=True)
class TryRecord:
    """A variant that a trial has tried, at the learning rate or C that is its best on validation. A
    trial that had nothing to choose has one."""

    run: str
    method: str
    task: str
    label_budget: str
    finetune_seed: int
    read_out: str  # as in TrialRecord
    initial_weights: str  # as in TrialRecord
    fixed: str  # settings of which the trial had one value and could have tried several
    validation_metric: float | None  # None if training diverged, or if nothing is trained
    validation_loss: float | None
    kept: int  # 1 of the variant that is the trial, else 0

    @property
    def settings(self) -> dict[str, str]:
        """The value of each setting that the trial may have tried several of, by its name:
        ``{"pooling": "last", "initial_weights": "usual"}``."""
        found = _pairs(self.read_out)
        return found | {"initial_weights": self.initial_weights} if self.initial_weights else found

    @property
    def fixed_settings(self) -> dict[str, str]:
        """``fixed``, as ``settings``."""
        return _pairs(self.fixed)


def _pairs(settings: str) -> dict[str, str]:
    parts = [part.partition("=") for part in settings.split(SEPARATOR) if part]
    return {name: value for name, _, value in parts}


@dataclass(frozen=True, kw_only=True)
class ScoredTry(TryRecord):
    """A variant and its score on the test set, by the metric of the task."""

    value: float | None  # None if training diverged


@dataclass(frozen=True, kw_only=True)
class PredictionRecord:
    method: str
    label_budget: str
    finetune_seed: int
    id: str
    prediction: str
    probability: float | None = None  # that the prediction is right, if the model gives one


@dataclass(frozen=True, kw_only=True)
class LostPredictionRecord(PredictionRecord):
    """A prediction of a variant that a trial has not kept."""

    read_out: str
    initial_weights: str


@dataclass(frozen=True, kw_only=True)
class BaselinePredictionRecord(PredictionRecord):
    """All baselines of a task share one file. The seeds say which rows were labelled."""

    run: str
    pretrain_seed: int


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """A point of the curve of one variant of a trial at one learning rate; the metric is on
    validation."""

    run: str
    method: str
    task: str
    label_budget: str
    finetune_seed: int
    lr: float
    epoch: int
    train_loss: float
    validation_metric: float
    validation_loss: float
    read_out: str = ""  # as in TrialRecord
    initial_weights: str = ""


def curve_key(row: "TrialRecord | EpochRecord") -> tuple[str | int | float, ...]:
    """Equal for a trial and the epochs of the variant and learning rate that it keeps."""
    place = row.run, row.method, row.label_budget, row.finetune_seed, row.lr
    return *place, row.read_out, row.initial_weights


@dataclass(frozen=True, kw_only=True)
class SkippedMethod:
    """A method that does not fit a run: they have no trials."""

    run: str
    method: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class InputRecord:
    """What a run reads of the rows of a split, and which states its labels are predicted from.

    Of ``train`` these are as many rows as the largest label budget. ``tokens`` are those of all
    examples and those that were cut: ``tokens_cut`` is a part of it.
    """

    run: str
    split: str
    read_at: str  # as Task.read_at; of several that trials try, all, between "or"
    rows: int
    rows_cut: int
    tokens: int
    tokens_cut: int


@dataclass(frozen=True, kw_only=True)
class TextBitsRecord:
    """How well a run predicts the inputs of a task's test rows by its own objective."""

    run: str
    loss: float  # nats per target
    bits_per_byte: float  # of the texts, if each of their tokens took as much as a target
    num_targets: int


@dataclass(frozen=True, kw_only=True)
class CostRecord:
    """What a trial took on the machine that ran it, and how fast it predicts there, which is
    measured once for all seeds: with the first one."""

    method: str
    label_budget: str
    finetune_seed: int
    wall_time_s: float
    peak_memory_bytes: int
    processor_time_s: float
    gpu_energy_j: float | None  # 0 without a GPU
    latency_s: float | None
    texts_per_s: float | None
    tokens_per_s: float | None
    hardware: str
    threads: int
    side_by_side: int  # as many trials ran at once


def budget_order(label_budget: str) -> float:
    """A key that sorts label budgets: numbers first, "all" last."""
    return math.inf if label_budget == "all" else float(label_budget)


def read(path: Path, kind: type[T]) -> list[T]:
    """The rows of a CSV file (``.gz`` or not), typed.

    Raises ValueError if the file is missing.
    """
    if not path.exists():
        raise ValueError(f"{path}: missing; run `dvc repro`")
    types = {key: _parser(hint) for key, hint in get_type_hints(kind).items()}
    with _open(path, "r") as file:
        rows = csv.DictReader(file)
        absent = set(types) - set(rows.fieldnames or ())
        assert not absent, f"{path}: no columns {sorted(absent)}"
        return [kind(**{key: cast(row[key]) for key, cast in types.items()}) for row in rows]


def _parser(hint: Any) -> Callable[[str], Any]:
    """What makes a field's text a value."""
    if not get_args(hint):
        return hint
    known = get_args(hint)[0]  # of ``known | None``
    return lambda text: known(text) if text else None


def write(path: Path, kind: type, rows: Iterable[Any]) -> None:
    """The same, written: whole or not at all, byte for byte the same for the same rows."""
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
    """Whether a text in it has a carriage return, which Python before 3.13 does not quote, and
    takes for the end of a row when it reads."""
    return any("\r" in value for value in row.values() if isinstance(value, str))


def discard_unlisted(folder: Path, listed: Iterable[str]) -> None:
    """Delete what is in ``folder`` but not in ``listed``; a dot before a name protects it."""
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
    # Neither a time nor a name in the header: equal rows give equal bytes.
    with (
        path.open(how + "b") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode=how + "b", mtime=0) as binary,
        io.TextIOWrapper(binary, encoding="utf-8", newline="") as file,
    ):
        yield file
