"""The costs of pretraining and fine-tuning. FLOPs are counted; times and memory are measured on
one machine."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from stages.core.artifacts import Json
from stages.core.keys import RunKey, TrialKey
from stages.core.params import NONE, Run
from stages.evaluation.records import CostRecord, ScoredTrial
from stages.findings.cells import Cell
from stages.findings.facts import ModelCost
from stages.findings.groups import Group


@dataclass(frozen=True, eq=False)
class Costs:
    """The measured costs of a study."""

    runs: Mapping[str, Run]
    pretraining: Mapping[RunKey, Json]  # wall_time_s, peak_memory_bytes, ...
    finetuning: Mapping[TrialKey, CostRecord]
    lineage_flops: Mapping[RunKey, int | None]

    @property
    def machines(self) -> set[str]:
        """The hardware that the costs were measured on."""
        costs = [*self.pretraining.values(), *map(vars, self.finetuning.values())]
        return {cost["hardware"] for cost in costs}

    def of_trials(self, cells: Iterable[Cell]) -> list[CostRecord]:
        """Returns the costs of the trials of cells; baselines have none."""
        keys = (trial.key for cell in cells for trial in cell.trials)
        return [self.finetuning[key] for key in keys if key in self.finetuning]

    def pretraining_s(self, group: Group) -> float | None:
        """Returns the seconds that pretraining a model and its parents (or teachers) took, as a
        mean over its seeds; None if a public checkpoint is among them."""
        lineages = [[*self._lineage(checkpoint)] for checkpoint in group.checkpoints]
        if any(self.runs[key.run].is_public for lineage in lineages for key in lineage):
            return None
        return fmean(
            sum(self.pretraining[key]["wall_time_s"] for key in lineage) for lineage in lineages
        )

    def _lineage(self, checkpoint: RunKey) -> Iterator[RunKey]:
        """Yields a checkpoint and its ancestors (parents or teachers), all of one seed."""
        run, seed = checkpoint
        while run != NONE:
            yield RunKey(run, seed)
            run = self.runs[run].parent

    def of_models(self, groups: Sequence[Group], cells: Sequence[Cell]) -> list[ModelCost]:
        """Returns what each model cost, as means over its seeds and all of its trials."""
        costs = []
        for group in groups:
            own = [cell for cell in cells if cell.group == group.name]
            trials = [trial for cell in own for trial in cell.trials]
            records = self.of_trials(own)
            costs.append(
                ModelCost(
                    model=group.name,
                    pretrain_flops=_mean([self.lineage_flops[key] for key in group.checkpoints]),
                    pretrain_s=self.pretraining_s(group),
                    finetune_flops=fmean(trial.finetune_flops for trial in trials),
                    finetune_s=_mean([record.wall_time_s for record in records]),
                    latency_s=measured_mean(record.latency_s for record in records),
                    peak_memory_bytes=max((r.peak_memory_bytes for r in records), default=None),
                    weights_bytes=weights_bytes(trials),
                )
            )
        return costs


def weights_bytes(trials: Sequence[ScoredTrial]) -> int | None:
    """Returns the most bytes of files that a prediction needs; None if unknown."""
    return max((t.weights_bytes for t in trials if t.weights_bytes), default=None)


def measured_mean(values: Iterable[float | None]) -> float | None:
    """Returns the mean of the values that were measured; None if none was."""
    known = [value for value in values if value]
    return fmean(known) if known else None


def _mean(values: Sequence[float | None]) -> float | None:
    """Returns the mean, or None if there is no value or one is unknown."""
    known = [value for value in values if value is not None]
    return fmean(known) if values and len(known) == len(values) else None


def total_flops(cell: Cell) -> int | None:
    """Returns the mean FLOPs of a lineage and a fine-tuning trial; None if they are unknown."""
    lineage, finetuning = cell.amounts["lineage_flops"], cell.amounts["finetune_flops"]
    return None if lineage is None or finetuning is None else lineage + finetuning
