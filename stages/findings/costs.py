"""The costs of pretraining and fine-tuning, and what pretraining gained for its cost.

FLOPs are counted. Times and memory are measured on one machine. Energy is estimated
(``training.energy``).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.core.keys import RunKey, TrialKey
from stages.core.params import NONE, Run
from stages.evaluation.metrics import merit, scale_of
from stages.evaluation.records import CostRecord
from stages.findings.cells import Cell
from stages.findings.contrasts import Contrast
from stages.findings.groups import Group
from stages.findings.scores import Scores
from stages.training.energy import Energy


@dataclass(frozen=True)
class LineageCost:
    """The cost of pretraining a run and its ancestors (parents or teachers); None is unknown."""

    flops: float | None
    wall_time_s: float | None
    joules: float | None


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

    def of_lineage(self, group: Group) -> LineageCost:
        """Returns the cost of a group's lineage, as a mean over its seeds. It is unknown if the
        lineage has a public checkpoint."""
        lineages = [[*self._lineage(checkpoint)] for checkpoint in group.checkpoints]
        if any(self.runs[key.run].is_public for lineage in lineages for key in lineage):
            return LineageCost(None, None, None)
        costs = [[self.pretraining[key] for key in lineage] for lineage in lineages]
        energies = [[estimated_energy(cost) for cost in lineage] for lineage in costs]
        return LineageCost(
            flops=mean_if_known(self.lineage_flops[key] for key in group.checkpoints),
            wall_time_s=fmean(sum(cost["wall_time_s"] for cost in lineage) for lineage in costs),
            joules=mean_if_known(
                None if None in lineage else sum(energy.joules for energy in lineage if energy)
                for lineage in energies
            ),
        )

    def _lineage(self, checkpoint: RunKey) -> Iterator[RunKey]:
        """Yields a checkpoint and its ancestors (parents or teachers), all of one seed."""
        run, seed = checkpoint
        while run != NONE:
            yield RunKey(run, seed)
            run = self.runs[run].parent


def estimated_energy(cost: Settings) -> Energy | None:
    """Returns the energy of a cost, from its ``processor_time_s`` and ``gpu_energy_j``, or None if
    the GPU does not report its energy."""
    return Energy.of(cost["processor_time_s"], cost["gpu_energy_j"])


def mean_if_known(values: Iterable[float | None]) -> float | None:
    """Returns the mean, or None if any value is unknown."""
    values = list(values)
    return None if None in values else fmean(value for value in values if value is not None)


@dataclass(frozen=True)
class Gain:
    """A pretrained run compared with the same model from scratch, and the cost of its
    pretraining."""

    contrast: Contrast
    cost: LineageCost

    @property
    def gained(self) -> float | None:
        """The gain in the unit of the metric; None if it is not significant or not positive."""
        a, b, metric = self.contrast.a, self.contrast.b, self.contrast.metric
        gained = merit(metric, a.mean.value) - merit(metric, b.mean.value)
        if not self.contrast.significant or gained <= 0:
            return None
        return scale_of(metric).factor * gained

    @property
    def cost_per_unit(self) -> LineageCost:
        """The cost of each point (or other unit of the metric) gained; unknown without a gain."""
        gained = self.gained
        shares = {
            key: None if value is None or gained is None else value / gained
            for key, value in asdict(self.cost).items()
        }
        return LineageCost(**shares)


def gains(contrasts: Sequence[Contrast], groups: Sequence[Group], costs: Costs) -> list[Gain]:
    """Returns the gains of pretraining over training from scratch, in the order of the
    contrasts."""
    compared = [contrast for contrast in contrasts if contrast.axis == "pretrained"]
    names = {contrast.a.group for contrast in compared}
    cost = {group.name: costs.of_lineage(group) for group in groups if group.name in names}
    return [Gain(contrast, cost[contrast.a.group]) for contrast in compared]


def total_flops(cell: Cell) -> int | None:
    """Returns the mean FLOPs of a lineage and a fine-tuning trial; None if they are unknown."""
    lineage, finetuning = cell.amounts["lineage_flops"], cell.amounts["finetune_flops"]
    return None if lineage is None or finetuning is None else lineage + finetuning


def cells_with_flops(scores: Scores, task: str, label_budget: str) -> list[tuple[Cell, int]]:
    """Returns the cells of runs with their ``total_flops``. Cells of unknown cost are left out,
    as are cells of cost 0, which have no place on a logarithmic axis."""
    cells = scores.run_cells(task, label_budget)
    return [(cell, flops) for cell in cells if (flops := total_flops(cell))]


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Returns the indices of the points (cost, merit) that no point of the same or lower cost
    beats, the cheapest first. If points are equal, only the first is on the front."""
    front: list[int] = []
    for i in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1])):
        if not front or points[i][1] > points[front[-1]][1]:
            front.append(i)
    return front
