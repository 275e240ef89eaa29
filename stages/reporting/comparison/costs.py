"""The costs of trials and of inference with their models: reports/costs.csv and page tables.

FLOPs and sizes of weights are counted. Times, memory and speed are measured on one machine. Energy
is estimated (``training.energy``).
"""

from collections.abc import Iterable
from dataclasses import asdict
from statistics import fmean, median

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.evaluation.precision import doublings, sentence
from stages.evaluation.records import CostRecord, ScoredTrial
from stages.reporting.comparison.gains import gains
from stages.reporting.comparison.groups import Group
from stages.reporting.comparison.pretraining_costs import estimated_energy, mean_if_known
from stages.reporting.comparison.results import Results, trial_key
from stages.reporting.comparison.tables import KEYS
from stages.reporting.number_format import (
    DASH,
    compact,
    energy,
    milliseconds,
    seconds,
    three_digits,
)
from stages.training.energy import BASIS

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


def rows(results: Results) -> list[Json]:
    """reports/costs.csv: the keys of trials, and what each trial and its pretraining took. Every
    trial of a cell repeats the gain over from scratch."""
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


def _estimates(cost: Settings) -> dict[str, float | str]:
    found = estimated_energy(cost)
    both = (found.joules, found.co2e_g) if found else (None, None)
    return dict(zip(ESTIMATES, map(three_digits, both), strict=True))


def finetuning_rows(results: Results) -> list[dict[str, str]]:
    """The table of the page: for each group and method, the mean cost of a trial and of inference
    with its model."""
    found = []
    for group in results.groups:
        for method in results.methods:
            costs = _costs(results, group, method)
            if costs:
                energies = (estimated_energy(vars(cost)) for cost in costs)
                found.append(
                    {
                        "run": group.name,
                        "method": method,
                        "time": seconds(fmean(cost.wall_time_s for cost in costs)),
                        "energy, estimate": energy(
                            mean_if_known(e.joules if e else None for e in energies)
                        ),
                        "weights on disk": weights(results, group, method),
                        "latency": milliseconds(median(_known(costs, "latency_s"))),
                        "texts/s": compact(median(_known(costs, "texts_per_s"))),
                    }
                )
    return found


def _trials(results: Results, group: Group, method: str) -> list[ScoredTrial]:
    trials = (trial for run in group.runs for trial in results.trials_of.get(run, []))
    return [trial for trial in trials if trial.method == method]


def _costs(results: Results, group: Group, method: str) -> list[CostRecord]:
    return [results.finetuning_costs[trial_key(t)] for t in _trials(results, group, method)]


def _known(costs: Iterable[CostRecord], key: str) -> list[float]:
    return [value for cost in costs if (value := getattr(cost, key)) is not None]


def weights_rows(results: Results) -> list[dict[str, str]]:
    """For each group and method, the weights that using the model needs."""
    return [
        {"run": group.name}
        | {method: weights(results, group, method) for method in results.methods}
        for group in results.groups
    ]


def weights(results: Results, group: Group, method: str) -> str:
    """The maximum over tasks, whose heads differ in size."""
    found = [t.weights_bytes for t in _trials(results, group, method) if t.weights_bytes]
    return f"{max(found) / 1e6:.3g} MB" if found else DASH


def notes(results: Results) -> list[str]:
    """How the numbers were measured, and what they leave out."""
    costs = [*results.finetuning_costs.values()]
    machines = {cost["hardware"] for cost in results.pretraining_costs.values()}
    machines |= {cost.hardware for cost in costs}
    named = ", ".join(f"`{name}`" for name in sorted(machines))
    several = " They are not comparable across machines; `costs.csv` names the machine of each row."
    threads = sorted({cost.threads for cost in costs})
    beside = max(cost.side_by_side for cost in costs)
    load = f", with up to {beside} trials side by side" if beside > 1 else ""
    return [
        f"Times, memory and speed were measured on {named}, which may have run other work at the "
        f"same time.{several if len(machines) > 1 else ''}",
        f"Latency: the time from one encoded text to its prediction, with the whole model, on "
        f"{' or '.join(map(str, threads))} thread{'s' if threads != [1] else ''}{load}; the median "
        "over some test texts and all tasks. Texts/s: the same in batches. Weights on disk: the "
        "weights that the method trained plus, unless it trained all, the checkpoint that it "
        "adapts.",
        f"Energy and CO2-equivalent (CO2e) are estimates: {BASIS}.",
    ]


def narrower(results: Results) -> list[str]:
    """What would narrow the intervals most, by time as measured."""
    found = doublings(
        [contrast.row() for contrast in results.contrasts],
        [
            {
                "run": trial.run,
                "wall_time_s": cost.wall_time_s,
                "pretrain_wall_time_s": results.pretraining_costs[trial.run]["wall_time_s"],
            }
            for trial in results.trials
            if (cost := results.finetuning_costs.get(trial_key(trial)))
        ],
        pretraining="pretrain_wall_time_s",
        finetuning="wall_time_s",
    )
    return sentence(found, seconds, per="per hour", unit=3600)
