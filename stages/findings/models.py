"""The models of a study that were fine-tuned, and how their pretraining went.

A model that was stopped early, or whose best learning rate lies beyond those tried, says little
about its architecture, size or training set.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import linear_regression
from typing import TYPE_CHECKING

from stages.core.artifacts import Json
from stages.core.keys import CheckpointKey
from stages.core.params import NONE, Model
from stages.evaluation.variance import Checkpoints

if TYPE_CHECKING:
    from stages.findings.results import Results

FALLING = 0.05  # nats per doubling of the steps; less is called flat


@dataclass(frozen=True, eq=False)
class ComparedModel:
    """A model of params.yaml that was fine-tuned on at least one task."""

    name: str
    entry: Model  # without a published parent: it would begin with that checkpoint in any case
    num_params: int  # that its trials on the first task use
    design: str | None  # equal for models whose states differ only by their weights
    tokenizer_corpus: str  # the corpus that the tokenizer was trained on; "none" if published
    corpus_tokens: int | None  # of the training set; None unless a corpus of the study
    corpus_text: str | None  # a hash, equal for two amounts of one text
    kept_rates: tuple[float, ...]  # the learning rates that pretraining kept, sorted

    @property
    def seeds(self) -> list[CheckpointKey]:
        """The checkpoints of the model."""
        return [CheckpointKey(self.name, seed) for seed in self.entry.seeds]

    @property
    def pretrained(self) -> bool:
        return self.entry.learnt[0] != NONE

    @property
    def corpus(self) -> str:
        return self.entry.learnt[1] if self.pretrained else NONE

    @property
    def checkpoints(self) -> Checkpoints:
        """Where the weights come from: "pretrained here", "published" or "none" (from scratch)."""
        if self.entry.as_published:
            return "published"
        return "pretrained here" if self.pretrained or self.entry.parent != NONE else "none"

    @property
    def start(self) -> str:
        """How its attention starts: "usual", "local" or, with published weights, "published"."""
        if self.entry.is_public:
            return "published"
        return str(self.entry.architecture.get("start", "usual"))

    @property
    def epochs(self) -> float | None:
        """How often pretraining read the training set; below 1 if it read only a part. None if the
        number of tokens is unknown."""
        if not self.corpus_tokens:
            return None
        training = self.entry.training
        return training.num_steps * training.batch_rows * training.max_tokens / self.corpus_tokens

    @property
    def targets_per_token(self) -> float | None:
        """The share of a row's tokens that the objective predicts; None if no setting says it."""
        objective = self.entry.objective
        if objective["name"] == "causal":
            return 1.0
        return objective.get("mask_prob") or objective.get("noise_density")

    @cached_property
    def settings(self) -> Json:
        """The settings of pretraining. A model from scratch and a published checkpoint have none of
        training; a public checkpoint determines its tokenizer."""
        entry = self.entry
        settings = {} if entry.is_public else {"tokenizer": entry.tokenizer}
        settings["parent"] = entry.parent
        if self.pretrained and not entry.as_published:
            training = entry.training.model_dump()
            settings["optimizer"] = training.pop("optimizer")
            settings |= {f"training.{key}": value for key, value in training.items()}
        return settings


def models(results: "Results") -> list[ComparedModel]:
    """Returns the models that were fine-tuned on at least one task, in the order of params.yaml."""
    params, members = results.params, list[ComparedModel]()
    first = {trial.model: trial for trial in reversed(results.trials)}
    for name, entry in params.models.items():
        if name not in first:
            continue
        parent, tokenizer = params.models.get(entry.parent), params.tokenizers.get(entry.tokenizer)
        own = entry.model_copy(update={"parent": NONE}) if parent and parent.as_published else entry
        text = (entry.corpus, entry.tokenizer) if entry.learnt[0] != NONE else ("", "")
        about = results.contamination.get(text, {})
        kept = {
            progress.kept_rate(entry)
            for key, progress in results.progress.items()
            if key.model == name and progress.history
        }
        members.append(
            ComparedModel(
                name=name,
                entry=own,
                num_params=first[name].num_params,
                design=first[name].design,
                tokenizer_corpus=tokenizer.corpus if tokenizer else NONE,
                corpus_tokens=about.get("tokens"),
                corpus_text=about.get("sha256"),
                kept_rates=tuple(sorted(kept)),
            )
        )
    return members


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
    tries: Sequence[TriedStep] = ()  # empty if one learning rate was tried

    def kept_rate(self, entry: Model) -> float:
        """Returns the learning rate that the model's weights were trained with."""
        return next((step.rate for step in self.tries if step.kept), entry.training.rates[0])


@dataclass(frozen=True)
class Ending:
    """The end of the pretraining of a checkpoint."""

    checkpoint: CheckpointKey
    slope: float | None  # nats per doubling of the steps; None: too few validations
    rates: set[float]  # learning rates that were tried
    kept: float

    @property
    def falls(self) -> bool:
        return self.slope is not None and self.slope <= -FALLING

    @property
    def at_edge(self) -> bool:
        """Whether the kept rate is the lowest or highest of several."""
        return len(self.rates) > 1 and self.kept in (min(self.rates), max(self.rates))


def endings(results: "Results") -> list[Ending]:
    """Returns the ends of all pretrainings."""
    ends = []
    for checkpoint, progress in results.progress.items():
        pairs = ((step.step, step.validation_loss) for step in progress.history)
        if losses := {step: loss for step, loss in pairs if loss is not None}:
            kept = progress.kept_rate(results.params.models[checkpoint.model])
            rates = {step.rate for step in progress.tries} or {kept}
            ends.append(Ending(checkpoint, slope_at_end(losses), rates, kept))
    return ends


def slope_at_end(losses: Mapping[int, float]) -> float | None:
    """The slope of the validation loss, in nats per doubling of the steps; negative if it falls.

    It is a least-squares fit of the loss against log2(step) over the validations in the last half
    of the steps; None if this half has only one. ``losses`` has the loss of each validation by
    step, the last at the end of training. A decaying learning rate falls to 0 in this half and
    lowers the loss, so the slope does not forecast the loss of a training with twice the steps
    (benchmarks/pretraining_rates.py).
    """
    last = max(losses)
    points = {math.log2(step): loss for step, loss in losses.items() if 2 * step >= last}
    if len(points) < 2:
        return None
    return linear_regression(list(points), list(points.values())).slope
