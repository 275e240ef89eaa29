"""The progress of each pretraining: its history of losses, and samples of generated text."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stages.core import paths
from stages.core.artifacts import Json, read_jsonl
from stages.core.params import Params
from stages.evaluation.records import discard_unlisted, read

HISTORY, SAMPLES = paths.PROGRESS / "history", paths.PROGRESS / "samples"


@dataclass(frozen=True, kw_only=True)
class Step:
    """A row of a run's history; tokens and FLOPs are cumulative."""

    step: int
    tokens: int
    flops: int
    loss: float
    lr: float
    validation_loss: float | None


@dataclass(frozen=True)
class Progress:
    """Both are empty for a run that was not pretrained."""

    history: list[Step]
    samples: list[Json]  # see ``training.samples``


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
    discard_unlisted(SAMPLES, [f"{run}.jsonl" for run in runs])
    missing = [path for run in runs if not (path := SAMPLES / f"{run}.jsonl").exists()]
    if missing:
        raise ValueError(f"{missing[0]}: missing; run `dvc repro`")
    return {
        run: Progress(read(HISTORY / f"{run}.csv", Step), read_jsonl(SAMPLES / f"{run}.jsonl"))
        for run in runs
    }
