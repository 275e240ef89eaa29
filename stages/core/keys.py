"""Keys of the checkpoints, cells and trials of a study."""

from typing import NamedTuple


class RunKey(NamedTuple):
    """A checkpoint: a run of params.yaml with one of its seeds."""

    run: str
    pretrain_seed: int

    def __str__(self) -> str:
        return f"{self.run}, seed {self.pretrain_seed}"


class CellKey(NamedTuple):
    """A cell: trials of a model or baseline that differ only in their seeds, with their mean."""

    model: str
    task: str
    method: str
    label_budget: str  # a number, or "all"


class TrialKey(NamedTuple):
    """A trial: a run or a baseline on a task, with one pair of seeds."""

    run: str
    pretrain_seed: int
    task: str
    method: str
    label_budget: str
    finetune_seed: int

    @property
    def checkpoint(self) -> RunKey:
        return RunKey(self.run, self.pretrain_seed)

    @property
    def cell(self) -> CellKey:
        return CellKey(self.run, self.task, self.method, self.label_budget)
