"""The progress of each pretraining: its history of losses, also at the learning rates that it did
not keep, and samples of generated text."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stages.core import paths
from stages.core.artifacts import Json, read_jsonl
from stages.core.params import Params, Run
from stages.evaluation.records import discard_unlisted, read

HISTORY, SAMPLES = paths.PROGRESS / "history", paths.PROGRESS / "samples"
RATES = paths.PROGRESS / "rates"


@dataclass(frozen=True, kw_only=True)
class Step:
    """A row of a run's history; tokens and FLOPs are cumulative."""

    step: int
    tokens: int
    flops: int
    loss: float
    lr: float
    validation_loss: float | None


@dataclass(frozen=True, kw_only=True)
class TriedStep(Step):
    """The same at one of several learning rates."""

    rate: float
    kept: int  # 1 at the rate that was best


@dataclass(frozen=True)
class Progress:
    """All are empty for a run that was not pretrained."""

    history: list[Step]
    samples: list[Json]  # see ``training.samples``
    tries: Sequence[TriedStep] = ()  # empty if one learning rate was tried


def final_losses(progress: Progress) -> dict[float, float | None]:
    """The last validation loss at each of several learning rates; None where training diverged."""
    last = {step.rate: step.validation_loss for step in progress.tries}
    return {rate: loss if loss and math.isfinite(loss) else None for rate, loss in last.items()}


def kept_rate(run: Run, progress: Progress) -> float:
    """The learning rate of the run's weights."""
    return next((step.rate for step in progress.tries if step.kept), run.training.rates[0])


@dataclass(frozen=True)
class Passage:
    """A validation passage, and what each run with its corpus and tokenizer generates from it."""

    corpus: str
    text: str  # empty: an empty prompt
    rows: list[tuple[str, str, str]]  # name, input and output of each run


def passages(params: Params, progress: Mapping[str, Progress]) -> list[Passage]:
    """Samples of all runs, grouped by passage."""
    found: dict[tuple[str, str, str], Passage] = {}
    for run, entry in params.pretrain.items():
        for sample in progress[run].samples:
            text = sample["passage"]
            place = found.setdefault(
                (entry.corpus, entry.tokenizer, text), Passage(entry.corpus, text, [])
            )
            place.rows.append((run, sample["prompt"], sample["written"]))
    return list(found.values())


def read_progress(runs: Iterable[str]) -> dict[str, Progress]:
    """Read the progress of ``runs``. First delete that of runs which params.yaml no longer lists.

    Raises ValueError with the path of a missing file.
    """
    runs = list(runs)
    discard_unlisted(HISTORY, [f"{run}.csv" for run in runs])
    discard_unlisted(RATES, [f"{run}.csv" for run in runs])
    discard_unlisted(SAMPLES, [f"{run}.jsonl" for run in runs])
    missing = [path for run in runs if not (path := SAMPLES / f"{run}.jsonl").exists()]
    if missing:
        raise ValueError(f"{missing[0]}: missing; run `dvc repro`")
    return {
        run: Progress(
            read(HISTORY / f"{run}.csv", Step),
            read_jsonl(SAMPLES / f"{run}.jsonl"),
            read(RATES / f"{run}.csv", TriedStep),
        )
        for run in runs
    }
