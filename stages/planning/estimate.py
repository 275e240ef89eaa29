"""An estimate: the stages that would run and what every training takes."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from stages.core.artifacts import Json
from stages.core.params import Params
from stages.planning.calibration import Calibration
from stages.planning.finetuning_costs import Finetuning, finetunings
from stages.planning.pretraining_costs import Pretraining, pretrainings
from stages.planning.run_sizes import planned_runs
from stages.planning.screening import screened
from stages.planning.speed import Other, measure_finetunings, measure_pretrainings, other_stages
from stages.planning.stored_trials import stored_trials
from stages.training.device import resolve, side_by_side
from stages.training.meter import peak_memory_bytes

SUMMED = ("tokens", "flops", "seconds", "disk_bytes")
Costs = Sequence[Pretraining | Finetuning]


@dataclass(frozen=True)
class Estimate:
    """The pending stages, and what every training takes, whether it is pending or not."""

    params: Params
    stages: list[str]
    pretrain: list[Pretraining]
    finetune: list[Finetuning]
    others: list[Other]  # pending stages that train nothing
    side_by_side: int  # trials
    at_least: list[Finetuning] | None = None  # with a screen; ``finetune`` is the most that it is

    @property
    def pending(self) -> list[Pretraining | Finetuning]:
        return [cost for cost in (*self.pretrain, *self.finetune) if cost.pending]


def made(params: Params, stages: list[str]) -> Estimate:
    """What it takes to run these stages."""
    # Measured first: the memory of a process that has imported torch and computed nothing.
    on_cpu = resolve(params.compute, threads=1).device == "cpu"
    changed = [task for task in params.tasks if f"prepare_task@{task}" in stages]
    runs = pretrainings(params)
    trials = finetunings(params, changed=changed, stored=stored_trials(params, stages))
    for cost in (*runs, *trials):
        if cost.memory_bytes is not None and on_cpu:
            cost.memory_bytes += peak_memory_bytes()  # Python, torch and what is imported
    for run in runs:
        run.pending = f"pretrain@{run.run}" in stages
    for each in trials:
        # A stage whose trials the store has runs, and takes next to nothing.
        waits = f"finetune@{each.task}" in stages
        each.pending = waits and each.num_stored < each.num_trials
    calibration = Calibration(params, trials)
    measure_pretrainings(params, runs, calibration)
    measure_finetunings(params, trials, calibration)
    bounds = screened(params, planned_runs(params), trials) if params.finetune.screen else None
    return Estimate(
        params,
        stages,
        runs,
        bounds.most if bounds else trials,
        other_stages(params, stages),
        side_by_side(params.compute),
        bounds.least if bounds else None,
    )


def as_record(estimate: Estimate) -> Json:
    """All numbers of an estimate, for JSON."""
    return {
        "study": estimate.params.study,
        "stages": estimate.stages,
        "trials_side_by_side": estimate.side_by_side,
        "pretrain": [asdict(each) for each in estimate.pretrain],
        "finetune": [asdict(each) for each in estimate.finetune],
        "finetune_at_least": estimate.at_least and [asdict(each) for each in estimate.at_least],
        "others": [asdict(each) for each in estimate.others],
        "totals": totals(estimate),
    }


def totals(estimate: Estimate) -> dict[str, Json]:
    """Sums over the pending stages, of the numbers that are known. ``unknown`` counts the stages
    and trainings without a time, ``unknown_sizes`` the trainings without a size: with any of them a
    sum is a lower bound."""
    parts: dict[str, Costs] = {"pretrain": estimate.pretrain, "finetune": estimate.finetune}
    counts = Counter(stage.partition("@")[0] for stage in estimate.stages)
    summed = {name: _total(costs, counts[name]) for name, costs in parts.items()}
    times = [other.seconds for other in estimate.others if other.seconds is not None]
    others = {
        **_total([], len(estimate.others)),
        "seconds": sum(times) if times else None,
        "unknown": len(estimate.others) - len(times),
    }
    every = _total(estimate.pending, len(estimate.stages))
    if times:
        every["seconds"] = sum(times) + (every["seconds"] or 0)
    every["unknown"] += others["unknown"]
    return summed | {"others": others, "all": every}


def _total(costs: Costs, num_stages: int) -> Json:
    waiting = [cost for cost in costs if cost.pending]
    peaks = [cost.memory_bytes for cost in waiting if cost.memory_bytes is not None]
    return {
        "stages": num_stages,
        **{name: known_sum(waiting, name) for name in SUMMED},
        "memory_bytes": max(peaks, default=None),
        "unknown": sum(has_unknown_time(cost) for cost in waiting),
        "unknown_sizes": sum(has_unknown_size(cost) for cost in waiting),
    }


def known_sum(costs: Iterable[Pretraining | Finetuning], name: str) -> float | None:
    """The sum of the known values; None if none is known."""
    known = [value for cost in costs if (value := getattr(cost, name)) is not None]
    return sum(known) if known else None


def has_unknown_size(cost: Pretraining | Finetuning) -> bool:
    """Of a public checkpoint before its download, or of trials on rows that are not counted yet."""
    return cost.architecture is None or (isinstance(cost, Finetuning) and cost.flops is None)


def has_unknown_time(cost: Pretraining | Finetuning) -> bool:
    """A run without an objective takes no time, which is known."""
    if isinstance(cost, Pretraining) and cost.flops is None:
        return cost.architecture is None
    return cost.seconds is None
