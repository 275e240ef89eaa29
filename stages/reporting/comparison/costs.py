"""What training took and what using its models takes: reports/costs.csv and tables of the page.

FLOPs and weights are counted, times, memory and speed are of a machine, energy is an estimate
(``training.energy``).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from stages.core.params import NONE
from stages.evaluation.metrics import merit, scale_of
from stages.evaluation.records import CostRecord, ScoredTrial
from stages.reporting.comparison.contrasts import Contrast
from stages.reporting.comparison.groups import Group
from stages.reporting.comparison.results import Results, trial_key
from stages.reporting.comparison.tables import KEYS
from stages.reporting.number_format import compact, significant
from stages.training.energy import BASIS, Energy

PRETRAINING = ("wall_time_s", "peak_memory_bytes", "processor_time_s", "hardware", "threads")
ESTIMATES = ("energy_j_estimate", "co2e_g_estimate")
COLUMNS = [
    *KEYS,
    *("wall_time_s", "peak_memory_bytes", "pretrain_wall_time_s", "pretrain_peak_memory_bytes"),
    *("processor_time_s", *ESTIMATES, "weights_bytes", "latency_s", "texts_per_s", "tokens_per_s"),
    *("hardware", "threads", "side_by_side"),
    *("pretrain_processor_time_s", *(f"pretrain_{key}" for key in ESTIMATES)),
    *("pretrain_hardware", "pretrain_threads"),
    *("gained", "flops_per_gain", "wall_time_s_per_gain", "energy_j_estimate_per_gain"),
]
UNKNOWN, NOTHING = "unknown", "\N{EN DASH}"


def rows(results: Results) -> list[dict[str, Any]]:
    """reports/costs.csv: the keys of trials, and what each trial and its pretraining took. What was
    gained over from scratch stands in each trial of a cell."""
    group_of = {run: group.name for group in results.groups for run in group.runs}
    gained = {gain.place: gain.row() for gain in reversed(gains(results))}
    found = []
    for trial in results.trials:
        if cost := results.finetuning_costs.get(trial_key(trial)):
            own = asdict(cost) | _estimates(asdict(cost))
            before = results.pretraining_costs[trial.run]
            before = {f"pretrain_{k}": v for k, v in (before | _estimates(before)).items()}
            place = group_of[trial.run], trial.task, trial.method, trial.label_budget
            found.append(
                {"study": results.params.study}
                | asdict(trial)
                | {key: "" if value is None else value for key, value in (own | before).items()}
                | gained.get(place, {})
            )
    return found


def _estimates(cost: Mapping[str, Any]) -> dict[str, float | str]:
    found = _energy(cost)
    both = (found.joules, found.co2e_g) if found else (None, None)
    return dict(zip(ESTIMATES, map(significant, both), strict=True))


def _energy(cost: Mapping[str, Any]) -> Energy | None:
    return Energy.of(cost["processor_time_s"], cost["gpu_energy_j"])


# Training ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pretraining:
    """What a run took with all that it came from; None is not known."""

    flops: float | None
    wall_time_s: float | None
    joules: float | None


def pretraining(results: Results, group: Group) -> Pretraining:
    """The mean of the runs of a group, which differ in their seeds."""
    lineages = [[*_lineage(results, run)] for run in group.runs]
    if any(results.params.pretrain[run].is_public for line in lineages for run in line):
        return Pretraining(None, None, None)
    costs = [[results.pretraining_costs[run] for run in line] for line in lineages]
    flops = {trial.run: trial.lineage_flops for trial in results.trials}
    return Pretraining(
        flops=_mean(flops[run] for run in group.runs),
        wall_time_s=fmean(sum(cost["wall_time_s"] for cost in line) for line in costs),
        joules=_mean(map(_joules, costs)),
    )


def _lineage(results: Results, run: str) -> Iterator[str]:
    """The run, its parent or teacher, theirs, ..."""
    while run != NONE:
        yield run
        run = results.params.pretrain[run].parent


def _joules(costs: Iterable[Mapping[str, Any]]) -> float | None:
    energies = [_energy(cost) for cost in costs]
    return None if None in energies else sum(energy.joules for energy in energies if energy)


def pretraining_rows(results: Results) -> list[dict[str, str]]:
    """For each group, what it is and what its pretraining took."""
    found = []
    for group in results.groups:
        trials = [trial for trial in results.trials if trial.run in group.runs]
        first: ScoredTrial = trials[0]
        costs = [results.pretraining_costs[run] for run in group.runs]
        elsewhere = group.entry.as_published  # here it was loaded, no more
        energies = [None if elsewhere else _energy(cost) for cost in costs]
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
                "energy, estimate": energy(_mean(e and e.joules for e in energies)),
                "CO2e, estimate": grams(_mean(e and e.co2e_g for e in energies)),
            }
        )
    return found


def _mean(values: Iterable[float | None]) -> float | None:
    values = list(values)
    return None if None in values else fmean(value for value in values if value is not None)


def _trials(results: Results, group: Group, method: str) -> list[ScoredTrial]:
    return [t for t in results.trials if t.run in group.runs and t.method == method]


def _costs(results: Results, group: Group, method: str) -> list[CostRecord]:
    return [results.finetuning_costs[trial_key(t)] for t in _trials(results, group, method)]


# Fine-tuning and use ----------------------------------------------------------------------------


def finetuning_rows(results: Results) -> list[dict[str, str]]:
    """For each group and method, what a trial took and what it takes to use its model."""
    found = []
    for group in results.groups:
        for method in results.methods:
            costs = _costs(results, group, method)
            if costs:
                found.append(
                    {
                        "run": group.name,
                        "method": method,
                        "time": seconds(fmean(cost.wall_time_s for cost in costs)),
                        "energy, estimate": energy(_mean(_joules([vars(c)]) for c in costs)),
                        "weights on disk": weights(results, group, method),
                        "a text alone": milliseconds(median(_known(costs, "latency_s"))),
                        "texts a second": compact(median(_known(costs, "texts_per_s"))),
                    }
                )
    return found


def _known(costs: Iterable[CostRecord], key: str) -> list[float]:
    return [value for cost in costs if (value := getattr(cost, key)) is not None]


def weights_rows(results: Results) -> list[dict[str, str]]:
    """For each group the weights that are kept to use it by each method."""
    return [
        {"run": group.name}
        | {method: weights(results, group, method) for method in results.methods}
        for group in results.groups
    ]


def weights(results: Results, group: Group, method: str) -> str:
    """The most of all tasks, whose heads differ."""
    found = [t.weights_bytes for t in _trials(results, group, method) if t.weights_bytes]
    return f"{max(found) / 1e6:.3g} MB" if found else NOTHING


# What a point takes -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Gain:
    """A pretrained run over its own from-scratch run, and what pretraining it took."""

    contrast: Contrast
    pretraining: Pretraining

    @property
    def place(self) -> tuple[str, str, str, str]:
        cell = self.contrast.a
        return cell.group, cell.task, cell.method, cell.label_budget

    @property
    def gained(self) -> float | None:
        """In the unit of the metric; None if that it gained is not resolved."""
        a, b, metric = self.contrast.a, self.contrast.b, self.contrast.metric
        gained = merit(metric, a.mean.value) - merit(metric, b.mean.value)
        if self.contrast.verdict != "resolved" or gained <= 0:
            return None
        return scale_of(metric).factor * gained

    @property
    def per_gain(self) -> Pretraining:
        """What one point (or other unit) took."""
        gained = self.gained
        shares = {
            key: None if value is None or gained is None else value / gained
            for key, value in asdict(self.pretraining).items()
        }
        return Pretraining(**shares)

    def row(self) -> dict[str, Any]:
        """Of reports/costs.csv."""
        each = self.per_gain
        return {
            "gained": significant(self.gained),
            "flops_per_gain": significant(each.flops),
            "wall_time_s_per_gain": significant(each.wall_time_s),
            "energy_j_estimate_per_gain": significant(each.joules),
        }


def gains(results: Results) -> list[Gain]:
    """In the order of the contrasts."""
    group = {group.name: group for group in results.groups}
    return [
        Gain(contrast, pretraining(results, group[contrast.a.group]))
        for contrast in results.contrasts
        if contrast.axis == "pretrained"
    ]


def gain_rows(results: Results) -> list[dict[str, str]]:
    found = []
    for gain in gains(results):
        contrast, each, gained = gain.contrast, gain.per_gain, gain.gained
        scale = scale_of(contrast.metric)
        resolved = contrast.verdict == "resolved"
        shown = f"{scale.signed(contrast.effect.value)} {scale.unit}".strip()
        row = {
            "run": contrast.a.group,
            "on": f"{contrast.task}, {contrast.label_budget} labels",
            "method": contrast.method,
            "over from scratch": shown if resolved else contrast.verdict,
        }
        for key, value in (
            ("FLOPs", compact(each.flops)),
            ("time", seconds(each.wall_time_s)),
            ("energy, estimate", energy(each.joules)),
        ):
            row[key] = NOTHING if gained is None else value
        found.append(row)
    return found


# Notes ------------------------------------------------------------------------------------------


def notes(results: Results) -> list[str]:
    """What the numbers are and are not."""
    costs = [*results.finetuning_costs.values()]
    machines = {cost["hardware"] for cost in results.pretraining_costs.values()}
    machines |= {cost.hardware for cost in costs}
    named = ", ".join(f"`{name}`" for name in sorted(machines))
    several = " They are not comparable across machines; `costs.csv` says which is whose."
    threads = sorted({cost.threads for cost in costs})
    beside = max(cost.side_by_side for cost in costs)
    load = f", with up to {beside} trials side by side" if beside > 1 else ""
    return [
        f"Times, memory and speed were measured on {named}, whatever else it did."
        f"{several if len(machines) > 1 else ''}",
        f"A text alone: from its encoded form to its prediction, by the whole model, on "
        f"{' or '.join(map(str, threads))} thread{'s' if threads != [1] else ''}{load}; the median "
        "of some test texts and of all tasks. Texts a second: in batches, likewise. Weights on "
        "disk: what the method trained and, unless that is all, the checkpoint that it adapts.",
        f"Energy and CO2-equivalent (CO2e) are estimates: {BASIS}.",
    ]


# Words ------------------------------------------------------------------------------------------


def seconds(value: float | None) -> str:
    """``0.8 s``, ``61 s``, ``12 min``, ``3.4 h``."""
    if value is None:
        return UNKNOWN
    if value < 99.5:
        return f"{value:.2g} s"
    return f"{value / 60:.3g} min" if value < 5940 else f"{value / 3600:.3g} h"


def milliseconds(value: float) -> str:
    return f"{1000 * value:.2g} ms" if value < 0.0995 else seconds(value)


def memory(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value / 2**20:.0f} MiB" if value < 2**30 else f"{value / 2**30:.1f} GiB"


def energy(joules: float | None) -> str:
    """``1.2 mWh``, ``0.34 Wh``, ``12 kWh``."""
    return UNKNOWN if joules is None else _measure(joules / 3600, "Wh")


def grams(value: float | None) -> str:
    return UNKNOWN if value is None else _measure(value, "g")


def _measure(value: float, unit: str) -> str:
    if value and value < 0.095:
        return f"{1000 * value:.2g} m{unit}"
    return f"{value:.2g} {unit}" if value < 99.5 else f"{value / 1000:.2g} k{unit}"
