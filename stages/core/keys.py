"""Keys of the checkpoints, cells and trials of a study."""

from typing import NamedTuple


class CheckpointKey(NamedTuple):
    """A checkpoint: a model of params.yaml with one of its seeds."""

    model: str
    pretrain_seed: int

    def __str__(self) -> str:
        return f"{self.model}, seed {self.pretrain_seed}"


class CellKey(NamedTuple):
    """A cell: trials of a model or baseline that differ only in their seeds, with their mean."""

    model: str
    task: str
    method: str
    label_budget: str  # a number, or "all"


class TrialKey(NamedTuple):
    """A trial: a model or a baseline on a task, with one pair of seeds."""

    model: str
    pretrain_seed: int
    task: str
    method: str
    label_budget: str
    finetune_seed: int

    @property
    def checkpoint(self) -> CheckpointKey:
        return CheckpointKey(self.model, self.pretrain_seed)

    @property
    def cell(self) -> CellKey:
        return CellKey(self.model, self.task, self.method, self.label_budget)
