"""Cells: the trials of one model, task, method and label budget, whose scores are averaged."""

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from stages.core.keys import CellKey
from stages.evaluation.metrics import merit
from stages.evaluation.moderation import Moderation
from stages.evaluation.records import CLASSICAL, ScoredTrial
from stages.evaluation.statistics import Interval
from stages.evaluation.variance import Checkpoints, Sample

if TYPE_CHECKING:
    from stages.findings.results import Results

# Amounts that every contrast checks. They are counted and not measured, so that they are the same
# on every machine. A lineage is a model with its parents and teachers.
AMOUNTS = {
    "num_params": "parameters",
    "num_trained_params": "trained parameters",
    "lineage_tokens": "tokens seen",
    "lineage_flops": "pretraining FLOPs",
    "lineage_bytes": "bytes read",
    "finetune_flops": "fine-tuning FLOPs",
    "num_tries": "tries on validation",
}
# A fault of a fit, the column of trials.csv and its value in trials that have the fault, and the
# share of a cell's trials above which the cell has it.
FAULTS = (
    ("still improving", "still_improving", 1, 0.5),
    ("chosen in the warm-up", "chosen_in_warmup", 1, 0.5),
    ("no minimum found", "converged", 0, 0.0),
)
DIGITS = 9  # decimals of a mean that are compared; later ones are rounding errors


@dataclass(frozen=True, eq=False)  # compared by identity, because comparing all trials takes long
class Cell:
    """A model's (or baseline's) trials on one task with one method and label budget."""

    model: str
    task: str
    method: str
    label_budget: str
    trials: tuple[ScoredTrial, ...]
    sample: Sample = field(repr=False)
    score: Interval  # the mean on test rows

    @property
    def key(self) -> CellKey:
        return CellKey(self.model, self.task, self.method, self.label_budget)

    @property
    def is_external(self) -> bool:
        return self.trials[0].is_external

    @property
    def is_baseline(self) -> bool:
        return self.method == CLASSICAL

    @property
    def metric(self) -> str:
        return self.trials[0].metric

    @property
    def merit(self) -> float:
        """The score, with a sign such that larger is better for every metric."""
        return merit(self.metric, self.score.value)

    @cached_property
    def validation(self) -> float | None:
        """The mean score on validation rows, by the same metric; None if a trial has none."""
        return mean_of_known([trial.validation_score for trial in self.trials])

    @cached_property
    def amounts(self) -> dict[str, int | None]:
        """The mean of each of ``AMOUNTS`` over the trials; None is unknown."""
        means = {key: mean_of_known([getattr(t, key) for t in self.trials]) for key in AMOUNTS}
        return {key: None if mean is None else round(mean) for key, mean in means.items()}

    @cached_property
    def faults(self) -> str:
        """The reasons to doubt that the trials were fitted well, with commas; "" for none."""
        return ", ".join(
            name
            for name, column, value, share in FAULTS
            if sum(getattr(t, column) == value for t in self.trials) > share * len(self.trials)
        )

    @cached_property
    def training_loss(self) -> float | None:
        """The mean loss at the end of trials that train in epochs; None if there is none."""
        losses = [trial.last_train_loss for trial in self.trials if trial.num_epochs]
        known = [loss for loss in losses if loss is not None]
        return fmean(known) if known else None

    @property
    def finetune_flops(self) -> float:
        return float(self.amounts["finetune_flops"] or 0)

    @property
    def preference(self) -> tuple[float, float]:
        """A key that sorts cells: the better test score first, then the cheaper."""
        return -round(self.merit, DIGITS), self.finetune_flops


def mean_of_known(values: list[float | None] | list[float]) -> float | None:
    """Returns the mean; None if there is no value or one is unknown."""
    known = [value for value in values if value is not None]
    return fmean(known) if values and len(known) == len(values) else None


def cells(results: "Results") -> tuple[list[Cell], Moderation]:
    """Returns the cells of all models and baselines, in the order of the trials, and the moderation
    of their variances."""
    checkpoints: dict[str, Checkpoints] = {m.name: m.checkpoints for m in results.models}
    members: dict[CellKey, list[ScoredTrial]] = defaultdict(list)
    for trial in results.trials:
        members[trial.key.cell].append(trial)
    samples: dict[CellKey, Sample] = {}
    for key, of_cell in members.items():
        seeds = tuple((trial.pretrain_seed, trial.finetune_seed) for trial in of_cell)
        values = np.array([trial.value for trial in of_cell])
        of_model, about = checkpoints.get(key.model, "none"), results.tasks[key.task]
        if about["split_seeds"]:
            overlap = about["num_examples"]["test"] / about["num_examples"]["train"]
            samples[key] = Sample.of_draws(seeds, values, of_model, overlap)
            continue
        rows = np.stack([results.row_scores[trial.key] for trial in of_cell])
        sample = Sample(seeds, values, rows, of_model)
        samples[key] = sample.repeated() if of_cell[0].is_external else sample
    moderation = Moderation(
        samples, baselines=results.params.baselines, confidence=results.confidence
    )
    every = [
        Cell(*key, tuple(members[key]), sample, moderation.mean(key))
        for key, sample in samples.items()
    ]
    return every, moderation
