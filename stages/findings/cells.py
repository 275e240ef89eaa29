"""Cells: the trials of one model, task, method and label budget, and all cells of a study."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean

import numpy as np
from jaxtyping import Float

from stages.core.keys import CellKey
from stages.core.params import NONE
from stages.evaluation.metrics import merit
from stages.evaluation.moderation import Moderation
from stages.evaluation.records import CLASSICAL, ScoredTrial
from stages.evaluation.statistics import Interval
from stages.evaluation.variance import Checkpoints, Sample
from stages.findings.groups import Group

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


def is_external(trial: ScoredTrial) -> bool:
    """Whether the trial is of an external system, which learnt from no row of the study."""
    return trial.method == CLASSICAL and trial.num_tries == 0


@dataclass(frozen=True, eq=False)  # compared by identity, because comparing all trials takes long
class Cell:
    """A model's (or baseline's) trials on one task with one method and label budget."""

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
    def is_external(self) -> bool:
        return is_external(self.trials[0])

    @property
    def is_baseline(self) -> bool:
        return self.method == CLASSICAL

    @property
    def checkpoints(self) -> Checkpoints:
        return self.sample.checkpoints

    @property
    def metric(self) -> str:
        return self.trials[0].metric

    @property
    def merit(self) -> float:
        """The mean, with a sign such that larger is better for every metric."""
        return merit(self.metric, self.mean.value)

    @cached_property
    def validation(self) -> float | None:
        """The mean score on validation rows; None if a trial has none."""
        scores = [trial.validation_score for trial in self.trials]
        known = [score for score in scores if score is not None]
        return fmean(known) if len(known) == len(scores) else None

    @property
    def has_one_pretraining_seed(self) -> bool:
        """Whether the model was pretrained here with only one seed, so that the cell says nothing
        about checkpoints of other seeds."""
        return self.sample.is_fixed

    @property
    def num_pretrain_seeds(self) -> int:
        return len({trial.pretrain_seed for trial in self.trials})

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
    """Returns the cells of all models and baselines, in the order of the trials, and the moderation
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


@dataclass(frozen=True, eq=False)
class Scores:
    """All cells of a study. Everything is in the order of params.yaml."""

    tasks: Sequence[str]
    methods: Sequence[str]
    label_budgets: Sequence[str]  # the smallest first
    groups: Sequence[Group]
    baselines: Sequence[str]  # those that are compatible with at least one task
    cells: Sequence[Cell]

    @property
    def names(self) -> list[str]:
        """The models and then the baselines: the rows of every table and figure of scores."""
        return [*(group.name for group in self.groups), *self.baselines]

    @cached_property
    def metrics(self) -> dict[str, str]:
        """The metric of each task."""
        return {cell.task: cell.metric for cell in self.cells}

    @cached_property
    def _cells(self) -> dict[CellKey, Cell]:
        return {cell.key: cell for cell in self.cells}

    def cell(self, name: str, task: str, method: str, label_budget: str) -> Cell | None:
        """Returns the cell of a model or of a baseline, or None if there is none. A baseline has
        the same cell for all methods."""
        method = CLASSICAL if name in self.baselines else method
        return self._cells.get(CellKey(name, task, method, label_budget))

    def run_cells(self, task: str, label_budget: str) -> list[Cell]:
        """Returns the cells of all models, without the baselines."""
        return [
            cell
            for group in self.groups
            for method in self.methods
            if (cell := self.cell(group.name, task, method, label_budget))
        ]

    def baseline_cells(self, task: str, label_budget: str) -> list[Cell]:
        cells = (self.cell(name, task, CLASSICAL, label_budget) for name in self.baselines)
        return [cell for cell in cells if cell]

    @cached_property
    def external_systems(self) -> list[str]:
        """The baselines that are external systems, whose training data and cost are unknown."""
        external = {cell.group for cell in self.cells if cell.is_external}
        return [name for name in self.baselines if name in external]
