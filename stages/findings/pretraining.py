"""The progress of each pretraining, and how it ended.

A model that was stopped early, or whose best learning rate lies beyond those tried, says little
about its architecture, size or training set.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stages.core import paths
from stages.core.artifacts import Json, read_jsonl
from stages.core.keys import RunKey
from stages.core.params import Run
from stages.evaluation.records import discard_unlisted, present, read
from stages.findings.curve_end import slope_at_end

TASKS = "history", "rates", "samples"
FALLING = 0.05  # nats per doubling of the steps; less is called flat


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
    samples: list[Json]  # passages with what the checkpoint writes or fills in
    tries: Sequence[TriedStep] = ()  # empty if one learning rate was tried


def kept_rate(run: Run, progress: Progress) -> float:
    """Returns the learning rate that the model's weights were trained with."""
    return next((step.rate for step in progress.tries if step.kept), run.training.rates[0])


def read_progress(checkpoints: Sequence[RunKey]) -> dict[RunKey, Progress]:
    """Reads the progress of all checkpoints of a study. First deletes the progress of models that
    the study no longer lists.

    Raises ValueError with the path of a missing file.
    """
    for kind in TASKS:
        discard_unlisted(paths.PROGRESS / kind, {checkpoint.run for checkpoint in checkpoints})
    return {
        checkpoint: Progress(
            read(paths.progress(checkpoint, "history"), Step),
            read_jsonl(present(paths.progress(checkpoint, "samples"))),
            read(paths.progress(checkpoint, "rates"), TriedStep),
        )
        for checkpoint in checkpoints
    }


@dataclass(frozen=True)
class Ending:
    """The end of the pretraining of a checkpoint."""

    checkpoint: RunKey
    num_steps: int
    validation_loss: float
    slope: float | None  # nats per doubling of the steps; None: too few validations
    rates: Mapping[float, float | None]  # learning rate -> last validation loss; None: it diverged
    kept: float

    @property
    def falls(self) -> bool:
        return self.slope is not None and self.slope <= -FALLING

    @property
    def at_edge(self) -> bool:
        """Whether the kept rate is the lowest or highest of several."""
        return len(self.rates) > 1 and self.kept in (min(self.rates), max(self.rates))


def endings(runs: Mapping[str, Run], progress: Mapping[RunKey, Progress]) -> list[Ending]:
    """Returns the ends of all pretrainings, in the order of ``progress``."""
    ends = []
    for checkpoint, of_checkpoint in progress.items():
        if history := of_checkpoint.history:
            losses = {s.step: s.validation_loss for s in history if s.validation_loss is not None}
            last = max(losses)
            kept = kept_rate(runs[checkpoint.run], of_checkpoint)
            at_end = {step.rate: step.validation_loss for step in of_checkpoint.tries}
            rates = {r: v if v and math.isfinite(v) else None for r, v in at_end.items()}
            ends.append(
                Ending(
                    checkpoint,
                    num_steps=last,
                    validation_loss=losses[last],
                    slope=slope_at_end(losses),
                    rates=rates or {kept: losses[last]},
                    kept=kept,
                )
            )
    return ends
