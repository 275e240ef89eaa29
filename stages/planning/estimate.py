"""An estimate: the pending stages and the cost of every training."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf

from stages.core.artifacts import Json
from stages.core.parallel import most_jobs
from stages.core.params import NONE, Params, Run, Screen
from stages.evaluation.screening import candidates
from stages.matching.budget import matched
from stages.planning.finetuning_costs import Finetuning, finetunings
from stages.planning.pretraining_costs import Pretraining, pretrainings
from stages.planning.speed import (
    Calibration,
    Other,
    add_times,
    makespan,
    operations,
    other_stages,
)
from stages.planning.stored import Stores
from stages.training.device import resolve, side_by_side
from stages.training.meter import peak_memory_bytes

# The estimates of 21 stages of the default study were off by at most 30 % (benchmarks/plan.md).
SPREAD = 1.3
# On a CPU, the allocator keeps memory that batches of many lengths have freed, and oneDNN keeps the
# code that it has compiled for each length. Measured in trials of models of 1 to 23 million weights
# that read up to 128 tokens. Each token that a model writes takes the memory of four lengths.
OF_A_LENGTH_BYTES = 5_500_000
LENGTHS_OF_A_WRITTEN_TOKEN = 4
MOST_LENGTHS = 200  # more were not measured
SUMMED = ("tokens", "flops", "seconds", "disk_bytes")
Costs = Sequence[Pretraining | Finetuning]


@dataclass(frozen=True)
class Estimate:
    """The pending stages, and the cost of every training, whether it is pending or not."""

    params: Params  # under the matched budget
    stages: list[str]
    pretrain: list[Pretraining]
    finetune: list[Finetuning]
    others: list[Other]  # pending stages that train nothing
    side_by_side: int  # trials that run at once in one job
    at_least: list[Finetuning] | None = None  # fine-tuning of the cheapest runs a screen may keep
    jobs: int = 1  # that `make repro` runs at once
    may_reuse: bool = False  # whether the stores may have results that are not subtracted

    @property
    def pending(self) -> list[Pretraining | Finetuning]:
        return [cost for cost in (*self.pretrain, *self.finetune) if cost.pending]


def made(params: Params, stages: list[str]) -> Estimate:
    """Estimates the cost of running ``stages``."""
    on_cpu = resolve(params.compute, threads=1).device == "cpu"
    study = matched(params)
    stores = Stores(study, stages)
    changed = [task for task in study.tasks if f"prepare_task@{task}" in stages]
    runs = pretrainings(study, {name: stores.missing_seeds(name) for name in study.runs})
    trials = finetunings(study, changed=changed, stored=stores.trials())
    # The peak memory of this process is read before the calibration, which would raise it.
    for cost in (*runs, *trials):
        if cost.memory_bytes is not None and on_cpu:
            if isinstance(cost, Finetuning):
                cost.memory_bytes += _kept_for_lengths(cost, cost.memory_bytes)
            cost.memory_bytes += peak_memory_bytes()  # Python, torch and other imports
    for cost in trials:
        # A stage whose trials are all stored still runs, but takes almost no time.
        waits = f"finetune@{cost.task}" in stages
        cost.pending = waits and cost.num_stored < cost.num_trials
    jobs = most_jobs(study.compute, study.distributed)
    add_times(study.runs, study.compute, Calibration(study, trials, jobs=jobs), runs, trials)
    screen = study.finetune.screen
    most, least = screened(study.runs, screen, trials) if screen else (trials, None)
    others = other_stages(study.corpora, study.tasks, stages)
    at_once = side_by_side(study.compute)
    may_reuse = stores.may_have_more()
    return Estimate(study, stages, runs, most, others, at_once, least, jobs, may_reuse)


def _kept_for_lengths(cost: Finetuning, memory_bytes: int) -> int:
    """Returns the bytes that a trial's process keeps because its batches have many lengths; at most
    three times the model's ``memory_bytes`` if nothing is trained by steps."""
    lengths = (cost.longest_text or 0) + LENGTHS_OF_A_WRITTEN_TOKEN * cost.written
    num_bytes = round(OF_A_LENGTH_BYTES * min(lengths, MOST_LENGTHS))
    return min(num_bytes, 3 * memory_bytes) if cost.num_steps is None else num_bytes


def screened(
    runs: Mapping[str, Run], screen: Screen, finetune: Sequence[Finetuning]
) -> tuple[list[Finetuning], list[Finetuning]]:
    """Returns the fine-tunings that remain if the screen keeps the most expensive runs, and those
    that remain if it keeps the cheapest. Which runs it will keep is not known yet.

    Runs are compared by their times or, where one is unknown, by their operations.
    """
    most, least = list[Finetuning](), list[Finetuning]()
    for task in dict.fromkeys(cost.task for cost in finetune):
        of_task = [cost for cost in finetune if cost.task == task]
        names = [name for name in candidates(runs) if any(c.run == name for c in of_task)]
        names.sort(key=lambda name: _work([c for c in of_task if c.run == name]), reverse=True)
        most += [cost for cost in of_task if cost.run not in names[screen.keep :]]
        least += [cost for cost in of_task if cost.run not in names[: -screen.keep]]
    return most, least


def _work(costs: Iterable[Finetuning]) -> tuple[float, float]:
    waiting = [cost for cost in costs if cost.pending]
    seconds = [inf if cost.seconds is None else cost.seconds for cost in waiting]
    flops = [inf if cost.flops is None else operations(cost) for cost in waiting]
    return sum(seconds), sum(flops)


def as_record(estimate: Estimate) -> Json:
    """Returns all numbers of an estimate, for JSON."""
    return {
        "study": estimate.params.study,
        "stages": estimate.stages,
        "trials_side_by_side": estimate.side_by_side,
        "pretrain": [asdict(cost) for cost in estimate.pretrain],
        "finetune": [asdict(cost) for cost in estimate.finetune],
        "finetune_at_least": estimate.at_least and [asdict(cost) for cost in estimate.at_least],
        "others": [asdict(other) for other in estimate.others],
        "totals": totals(estimate),
    }


def totals(estimate: Estimate) -> dict[str, Json]:
    """Returns sums over the pending stages of all numbers that are known. ``unknown`` counts the
    stages and trainings without a time, and ``unknown_sizes`` the trainings without a size. If one
    of these counts is not 0, the sums are lower bounds."""
    parts: dict[str, Costs] = {"pretrain": estimate.pretrain, "finetune": estimate.finetune}
    counts = Counter(stage.partition("@")[0] for stage in estimate.stages)
    counts["pretrain"] += counts["continue_pretraining"]
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


def duration_range(estimate: Estimate) -> tuple[float, float, float] | None:
    """Returns the seconds of all pending stages, one job at a time, then a lower and an upper bound
    of this time; None if no time is known. The lower bound assumes that a screen keeps the cheapest
    runs."""
    if (seconds := totals(estimate)["all"]["seconds"]) is None:
        return None
    least = seconds
    if estimate.at_least is not None:
        most, fewest = (
            known_sum([cost for cost in costs if cost.pending], "seconds") or 0.0
            for costs in (estimate.finetune, estimate.at_least)
        )
        least -= most - fewest
    return seconds, least / SPREAD, seconds * SPREAD


def of_all_jobs(estimate: Estimate) -> float:
    """Returns the seconds of all pending stages with as many jobs as `make repro` runs: first the
    stages that train nothing, one after the other, then the pretrainings, then the trials."""
    pretrained, trials = list[float](), list[float]()
    for cost in estimate.pretrain:
        if cost.pending and cost.seconds:
            number = cost.num_seeds - cost.num_stored
            pretrained += [cost.seconds / number] * number
    waiting = [cost for cost in estimate.finetune if cost.pending]
    if estimate.params.finetune.screen:  # a stage that screens runs its trials itself
        trials = [
            sum(cost.seconds or 0.0 for cost in waiting if cost.task == task)
            for task in estimate.params.tasks
        ]
    else:
        trials = [share * (cost.alone_s or 0.0) for cost in waiting for share in cost.shares]
    trained = makespan(pretrained, estimate.jobs) + makespan(trials, estimate.jobs)
    return sum(other.seconds or 0.0 for other in estimate.others) + trained


def num_trainings(estimate: Estimate) -> tuple[int, int]:
    """Returns how many pretrainings and trials would run, without those in the stores."""
    trained = [cost for cost in estimate.pretrain if cost.pending and cost.objective != NONE]
    trials = [cost for cost in estimate.finetune if cost.pending]
    pretrained = sum(cost.num_seeds - cost.num_stored for cost in trained)
    return pretrained, sum(cost.num_trials - cost.num_stored for cost in trials)


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
    """Returns the sum of the known values of the field ``name``, or None if no value is known."""
    known = [value for cost in costs if (value := getattr(cost, name)) is not None]
    return sum(known) if known else None


def has_unknown_size(cost: Pretraining | Finetuning) -> bool:
    """Returns whether the size of a training is unknown, as for a public checkpoint before its
    download and for trials on rows that are not counted yet."""
    return cost.architecture is None or (isinstance(cost, Finetuning) and cost.flops is None)


def has_unknown_time(cost: Pretraining | Finetuning) -> bool:
    """Returns whether a training's time is unknown. A run without an objective takes no time."""
    if isinstance(cost, Pretraining) and cost.flops is None:
        return cost.architecture is None
    return cost.seconds is None
