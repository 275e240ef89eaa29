"""The progress of each pretraining: its history of losses, also at the learning rates that it did
not keep, and samples of generated text."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stages.core import paths
from stages.core.artifacts import Json, read_jsonl
from stages.core.keys import RunKey
from stages.core.params import Run
from stages.evaluation.records import discard_unlisted, present, read
from stages.findings.groups import Group, names_of

KINDS = "history", "rates", "samples"


@dataclass(frozen=True, kw_only=True)
class Step:
    """A row of a pretraining's history; tokens and FLOPs are cumulative."""

    step: int
    tokens: int
    flops: int
    loss: float
    lr: float
    validation_loss: float | None


@dataclass(frozen=True, kw_only=True)
class TriedStep(Step):
    """A row of the history of one of several learning rates."""

    rate: float
    kept: int  # 1 in the rows of the rate that was best, otherwise 0


@dataclass(frozen=True)
class Progress:
    """The progress of a checkpoint's pretraining; all fields are empty if it was not pretrained."""

    history: list[Step]
    samples: list[Json]  # see ``training.samples``
    tries: Sequence[TriedStep] = ()  # empty if one learning rate was tried


def validation_losses(progress: Progress) -> list[float]:
    """Returns the loss at each validation, in nats, at the kept learning rate."""
    return [step.validation_loss for step in progress.history if step.validation_loss is not None]


def comparable(
    all_groups: Sequence[Group], progress: Mapping[RunKey, Progress]
) -> list[list[Group]]:
    """Returns the pretrained groups in sets whose validation losses can be compared. The groups of
    a set have the same objective with its settings, corpus, tokenizer, row length and parent or
    teacher."""
    sets: dict[str, list[Group]] = defaultdict(list)
    for group in all_groups:
        if all(validation_losses(progress[checkpoint]) for checkpoint in group.checkpoints):
            entry = group.entry
            length = entry.training.max_tokens
            key = entry.objective, entry.corpus, entry.tokenizer, length, entry.parent
            sets[repr(key)].append(group)
    return list(sets.values())


def kept_rate(run: Run, progress: Progress) -> float:
    """Returns the learning rate that the run's weights were trained with."""
    return next((step.rate for step in progress.tries if step.kept), run.training.rates[0])


@dataclass(frozen=True)
class Passage:
    """A validation passage, with the outputs of all checkpoints of its corpus and tokenizer."""

    corpus: str
    text: str  # empty: an empty prompt
    rows: list[tuple[str, str, str]]  # name, input and output of each checkpoint


def passages(runs: Mapping[str, Run], progress: Mapping[RunKey, Progress]) -> list[Passage]:
    """Returns the samples of all checkpoints, grouped by passage."""
    by_text: dict[tuple[str, str, str], Passage] = {}
    for checkpoint, of_checkpoint in progress.items():
        run = runs[checkpoint.run]
        for sample in of_checkpoint.samples:
            text = sample["passage"]
            passage = by_text.setdefault(
                (run.corpus, run.tokenizer, text), Passage(run.corpus, text, [])
            )
            (name,) = names_of([checkpoint], runs)
            passage.rows.append((name, sample["prompt"], sample["written"]))
    return list(by_text.values())


def read_progress(checkpoints: Sequence[RunKey]) -> dict[RunKey, Progress]:
    """Reads the progress of all checkpoints of a study. First deletes the progress of runs that
    the study no longer lists.

    Raises ValueError with the path of a missing file.
    """
    for kind in KINDS:
        discard_unlisted(paths.PROGRESS / kind, {checkpoint.run for checkpoint in checkpoints})
    return {
        checkpoint: Progress(
            read(paths.progress(checkpoint, "history"), Step),
            read_jsonl(present(paths.progress(checkpoint, "samples"))),
            read(paths.progress(checkpoint, "rates"), TriedStep),
        )
        for checkpoint in checkpoints
    }
