"""Cells: the trials of one group, task, method and label budget, as one cell of a table."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Float

from stages.core.keys import CellKey
from stages.core.params import NONE
from stages.evaluation.metrics import merit
from stages.evaluation.moderation import Moderation
from stages.evaluation.records import CLASSICAL, ScoredTrial
from stages.evaluation.statistics import (
    Interval,
    Values,
    per_finetune_seed,
    per_pretrain_seed,
)
from stages.evaluation.variance import Checkpoints, Sample
from stages.findings.groups import Group

# The confounds that every contrast checks. They are counted and not measured, so that they are the
# same on every machine. A lineage is a run with its parents and teachers.
AMOUNTS = {
    "num_params": "parameters",
    "num_trained_params": "trained parameters",
    "lineage_tokens": "tokens seen",
    "lineage_flops": "pretraining FLOPs",
    "lineage_bytes": "bytes read",
    "finetune_flops": "fine-tuning FLOPs",
    "num_tries": "tries on validation",
}


def is_external(trial: ScoredTrial) -> bool:
    """Whether the trial is of an external system, which learnt from no row of the study."""
    return trial.method == CLASSICAL and trial.num_tries == 0


@dataclass(frozen=True, eq=False)  # compared by identity, because comparing all trials takes long
class Cell:
    """A group's (or baseline's) trials on one task with one method and label budget."""

    group: str
    task: str
    method: str
    label_budget: str
    trials: tuple[ScoredTrial, ...]
    sample: Sample = field(repr=False)
    mean: Interval

    @property
    def key(self) -> CellKey:
        return CellKey(self.group, self.task, self.method, self.label_budget)

    @property
    def confidence(self) -> float:
        return self.mean.confidence

    @property
    def is_external(self) -> bool:
        return is_external(self.trials[0])

    @property
    def checkpoints(self) -> Checkpoints:
        return self.sample.checkpoints

    @cached_property
    def values(self) -> Values:
        values: dict[int, dict[int, float]] = defaultdict(dict)
        for trial in self.trials:
            values[trial.pretrain_seed][trial.finetune_seed] = trial.value
        return values

    @property
    def metric(self) -> str:
        return self.trials[0].metric

    @property
    def merit(self) -> float:
        """The mean, with a sign such that larger is better for every metric."""
        return merit(self.metric, self.mean.value)

    @property
    def has_one_pretraining_seed(self) -> bool:
        """Whether the group was pretrained here with only one seed, so that the cell says nothing
        about checkpoints of other seeds."""
        return self.checkpoints == "pretrained here" and self.num_pretrain_seeds == 1

    @property
    def num_pretrain_seeds(self) -> int:
        return len(self.values)

    @property
    def num_finetune_seeds(self) -> int:
        return max(len(by_seed) for by_seed in self.values.values())

    @cached_property
    def amounts(self) -> dict[str, int | None]:
        """The mean of each of ``AMOUNTS`` over the trials; None is unknown."""
        values_by_name = {key: [getattr(trial, key) for trial in self.trials] for key in AMOUNTS}
        return {
            key: None if None in values else round(sum(values) / len(values))
            for key, values in values_by_name.items()
        }


def cells(
    all_groups: Sequence[Group],
    trials: Iterable[ScoredTrial],
    rows_of: Callable[[ScoredTrial], Float[np.ndarray, " n"]],
    *,
    overlaps: Mapping[str, float | None],
    baselines: Collection[str],
    confidence: float,
) -> tuple[list[Cell], Moderation]:
    """Returns the cells of all groups and baselines, in the order of the trials, and the moderation
    of their variances. ``overlaps`` has the ``Sample.overlap`` of each task."""
    checkpoints: dict[str, Checkpoints] = {g.name: _checkpoints(g) for g in all_groups}
    members: dict[CellKey, list[ScoredTrial]] = defaultdict(list)
    for trial in trials:
        members[trial.key.cell].append(trial)
    samples: dict[CellKey, Sample] = {}
    for key, of_cell in members.items():
        seeds = tuple((trial.pretrain_seed, trial.finetune_seed) for trial in of_cell)
        values = np.array([trial.value for trial in of_cell])
        checkpoints_of_run, overlap = checkpoints.get(key.run, "none"), overlaps[key.task]
        if overlap is not None:
            samples[key] = Sample.of_draws(seeds, values, checkpoints_of_run, overlap)
            continue
        rows = np.stack([rows_of(trial) for trial in of_cell])
        sample = Sample(seeds, values, rows, checkpoints_of_run)
        samples[key] = sample.repeated() if is_external(of_cell[0]) else sample
    moderation = Moderation(samples, baselines=baselines, confidence=confidence)
    all_cells = [
        Cell(*key, trials=tuple(members[key]), sample=sample, mean=moderation.mean(key))
        for key, sample in samples.items()
    ]
    return all_cells, moderation


def _checkpoints(group: Group) -> Checkpoints:
    if group.entry.as_published:
        return "published"
    return "pretrained here" if group.pretrained or group.entry.parent != NONE else "none"


def by_shared_seeds(some_cells: Sequence[Cell]) -> Float[np.ndarray, "cells seeds"]:
    """Returns the score of each cell for each seed that all cells have: for pretraining seeds if
    they share several (whose scores vary with both sources of chance), else for fine-tuning seeds.
    If these fine-tuning seeds draw the splits, the only column is the mean over them: the draws
    share rows, so the spread of their scores would be too small."""
    samples = [per_pretrain_seed(cell.values) for cell in some_cells]
    shared = set.intersection(*map(set, samples))
    by_finetune_seed = len(shared) < 2
    if by_finetune_seed:
        samples = [per_finetune_seed(cell.values) for cell in some_cells]
        shared = set.intersection(*map(set, samples))
    scores = [[sample[seed] for seed in sorted(shared)] for sample in samples]
    table = np.array(scores, dtype=float)
    are_draws = some_cells[0].sample.overlap is not None and by_finetune_seed
    return table.mean(axis=1, keepdims=True) if are_draws else table
