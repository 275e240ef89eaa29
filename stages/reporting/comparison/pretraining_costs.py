"""Costs of pretraining: FLOPs (counted), time and memory (measured), energy (estimated)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.core.params import NONE
from stages.evaluation.records import ScoredTrial
from stages.reporting.comparison.groups import Group
from stages.reporting.comparison.results import Results
from stages.reporting.number_format import compact, energy, grams, memory, seconds
from stages.training.energy import Energy


@dataclass(frozen=True)
class Pretraining:
    """The cost of a lineage: a run, its parent or teacher, theirs, ...; None is unknown."""

    flops: float | None
    wall_time_s: float | None
    joules: float | None


def pretraining(results: Results, group: Group) -> Pretraining:
    """The mean over the runs of a group, which differ in their seeds."""
    lineages = [[*_lineage(results, run)] for run in group.runs]
    if any(results.params.pretrain[run].is_public for line in lineages for run in line):
        return Pretraining(None, None, None)
    costs = [[results.pretraining_costs[run] for run in line] for line in lineages]
    return Pretraining(
        flops=mean_if_known(results.trials_of[run][-1].lineage_flops for run in group.runs),
        wall_time_s=fmean(sum(cost["wall_time_s"] for cost in line) for line in costs),
        joules=mean_if_known(map(_joules, costs)),
    )


def _lineage(results: Results, run: str) -> Iterator[str]:
    while run != NONE:
        yield run
        run = results.params.pretrain[run].parent


def _joules(costs: Iterable[Json]) -> float | None:
    energies = [estimated_energy(cost) for cost in costs]
    return None if None in energies else sum(energy.joules for energy in energies if energy)


def estimated_energy(cost: Settings) -> Energy | None:
    """Of a cost with ``processor_time_s`` and ``gpu_energy_j``; None if the GPU reports none."""
    return Energy.of(cost["processor_time_s"], cost["gpu_energy_j"])


def mean_if_known(values: Iterable[float | None]) -> float | None:
    """None if any value is unknown."""
    values = list(values)
    return None if None in values else fmean(value for value in values if value is not None)


def pretraining_rows(results: Results) -> list[dict[str, str]]:
    """The table of the page: for each group, its size and the mean cost of its runs."""
    found = []
    for group in results.groups:
        trials = [trial for trial in results.trials if trial.run in group.runs]
        first: ScoredTrial = trials[0]
        costs = [results.pretraining_costs[run] for run in group.runs]
        elsewhere = group.entry.as_published  # only loaded here, pretrained by others
        energies = [None if elsewhere else estimated_energy(cost) for cost in costs]
        found.append(
            {
                "run": group.name,
                "parameters": compact(group.num_params),
                "tokens seen": compact(first.pretrain_tokens),
                "FLOPs": compact(first.pretrain_flops),
                "time": seconds(None if elsewhere else fmean(c["wall_time_s"] for c in costs)),
                "peak memory": memory(
                    None if elsewhere else max(c["peak_memory_bytes"] for c in costs)
                ),
                "energy, estimate": energy(
                    mean_if_known(e.joules if e else None for e in energies)
                ),
                "CO2e, estimate": grams(mean_if_known(e.co2e_g if e else None for e in energies)),
            }
        )
    return found
