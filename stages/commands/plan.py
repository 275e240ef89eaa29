"""Show what `dvc repro` would run and what that costs, before anything runs.

Nothing is written. Times are those of earlier runs, which are taken to be of this machine, of
trainings scaled by the operations; where there are none, those of a calibration, which tries each
model, and the reading of what takes long to read, for some seconds. Memory is the most that a
training's process held then, else an estimate from the sizes of weights and activations.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from stages.checking.faults import find_faults
from stages.core.params import Params, load, read_yaml
from stages.core.process import exit_on_mistake
from stages.planning.calibration import Calibration
from stages.planning.costs import Finetuning, Pretraining, finetunings, pretrainings
from stages.planning.pending import pending
from stages.planning.speed import (
    CALIBRATION,
    Other,
    measure_finetunings,
    measure_pretrainings,
    other_stages,
)
from stages.training.device import resolve, side_by_side
from stages.training.meter import peak_memory_bytes

PIPELINE = Path("dvc.yaml")
PIPED_WIDTH = 100
UNKNOWN = "–"
SUMMED = ("tokens", "flops", "seconds", "disk_bytes")


@dataclass(frozen=True)
class Estimate:
    """The stages that are pending, and what every training takes, be it pending or not."""

    params: Params
    stages: list[str]
    pretrain: list[Pretraining]
    finetune: list[Finetuning]
    others: list[Other]  # pending stages that train nothing
    side_by_side: int  # trials


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m stages.commands.plan",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="the same numbers as JSON: operations, seconds and bytes; null is not known",
    )
    as_json = parser.parse_args().json
    _begin_as_trainings_do()
    exit_on_mistake(lambda: _main(as_json=as_json))


def _begin_as_trainings_do() -> None:
    """Start anew in the environment that dvc.yaml gives to trainings, unless this is it: how memory
    is handled decides how fast a calibration is, and is read when a process begins."""
    if not PIPELINE.is_file():
        return
    (variables,) = read_yaml(PIPELINE)["vars"]
    settings = dict(word.split("=") for word in variables["torch"].split() if "=" in word)
    if not settings.items() <= os.environ.items():
        again = [sys.executable, "-m", "stages.commands.plan", *sys.argv[1:]]
        os.execve(sys.executable, again, os.environ | settings)


def _main(*, as_json: bool) -> None:
    params = checked(load())
    plan = made(params, pending(params))
    if as_json:
        print(json.dumps(as_record(plan), indent=2, ensure_ascii=False))
        return
    console = Console()
    if not console.is_terminal:  # nothing is cut off in a file or behind a pipe
        console = Console(width=PIPED_WIDTH)
    show(plan, console)


def checked(params: Params) -> Params:
    """Raises ValueError with every fault of params.yaml."""
    if faults := list(find_faults(params)):
        raise ValueError("\n".join(faults))
    return params


def made(params: Params, stages: list[str]) -> Estimate:
    """What it takes to run these stages."""
    # Threads that began here would be missing in the processes that a calibration forks.
    on_cpu = resolve(params.compute, threads=1).device == "cpu"
    changed = [task for task in params.tasks if f"prepare_task@{task}" in stages]
    runs, trials = pretrainings(params), finetunings(params, changed=changed)
    for cost in (*runs, *trials):
        if cost.memory_bytes is not None and on_cpu:
            cost.memory_bytes += peak_memory_bytes()  # Python, torch and what is imported
    for run in runs:
        run.pending = f"pretrain@{run.run}" in stages
    for each in trials:
        each.pending = f"finetune@{each.run}-{each.task}" in stages
    calibration = Calibration(params, trials)
    measure_pretrainings(params, runs, calibration)
    measure_finetunings(params, trials, calibration)
    return Estimate(
        params, stages, runs, trials, other_stages(params, stages), side_by_side(params.compute)
    )


def as_record(plan: Estimate) -> dict[str, Any]:
    """All numbers of a plan, by names that JSON has."""
    return {
        "study": plan.params.study,
        "stages": plan.stages,
        "trials_side_by_side": plan.side_by_side,
        "pretrain": [asdict(each) for each in plan.pretrain],
        "finetune": [asdict(each) for each in plan.finetune],
        "others": [asdict(each) for each in plan.others],
        "totals": totals(plan),
    }


def totals(plan: Estimate) -> dict[str, dict[str, Any]]:
    """Of what is pending."""
    parts = {"pretrain": plan.pretrain, "finetune": plan.finetune}
    counts = Counter(stage.partition("@")[0] for stage in plan.stages)
    summed = {name: _total(costs, counts[name]) for name, costs in parts.items()}
    times = [other.seconds for other in plan.others if other.seconds is not None]
    others = {
        **_total([], len(plan.others)),
        "seconds": sum(times) if times else None,
        "unknown": len(plan.others) - len(times),
    }
    every = _total([*plan.pretrain, *plan.finetune], len(plan.stages))
    if times:
        every["seconds"] = sum(times) + (every["seconds"] or 0)
    every["unknown"] += others["unknown"]
    return summed | {"others": others, "all": every}


def _total(costs: Iterable[Pretraining | Finetuning], num_stages: int) -> dict[str, Any]:
    """Sums over what is known of it, and the number of trainings of which the time is not."""
    waiting = [cost for cost in costs if cost.pending]
    sums = {name: _sum(waiting, name) for name in SUMMED}
    peaks = [cost.memory_bytes for cost in waiting if cost.memory_bytes is not None]
    return {
        "stages": num_stages,
        **sums,
        "memory_bytes": max(peaks, default=None),
        "unknown": sum(_is_unknown(cost) for cost in waiting),
    }


def _sum(costs: Iterable[Pretraining | Finetuning], name: str) -> float | None:
    """Over what is known; None if nothing is."""
    known = [value for cost in costs if (value := getattr(cost, name)) is not None]
    return sum(known) if known else None


def _is_unknown(cost: Pretraining | Finetuning) -> bool:
    """Whether its time is not known; a run that nothing trains has none."""
    if isinstance(cost, Pretraining):
        return cost.architecture is None or (cost.flops is not None and cost.seconds is None)
    return cost.seconds is None


# On the screen.


def show(plan: Estimate, console: Console) -> None:
    console.print(_pretraining_table(plan))
    if any(cost.pending for cost in plan.finetune):
        console.print(_finetuning_table(plan))
    if plan.stages:
        console.print(_totals_table(plan))
    for line in notes(plan):
        console.print(line, highlight=False, soft_wrap=False)


def _pretraining_table(plan: Estimate) -> Table:
    budget, title = plan.params.budget, "What runs cost"
    if budget.matched != "none":
        title += f", matched in {budget.matched} with {budget.reference}"
    numbers = ("layers", "weights", "steps", "tokens", "FLOPs", "time", "memory")
    table = _table(title, ("run", "objective"), numbers)
    for cost in plan.pretrain:
        table.add_row(
            cost.run,
            cost.objective,
            _shown(cost.num_layers, str),
            _shown(cost.num_params, _millions),
            _shown(cost.num_steps, str),
            _shown(cost.tokens, _millions),
            _shown(cost.flops, _flops),
            _shown(cost.seconds, duration) if cost.pending else "done",
            _shown(cost.memory_bytes, size),
        )
    return table


def _finetuning_table(plan: Estimate) -> Table:
    """A line for a task and a method, of all runs that are pending."""
    numbers = ("runs", "trials", "steps", "tokens", "FLOPs", "time", "memory", "disk")
    table = _table("What fine-tuning costs, of all runs", ("task", "method"), numbers)
    order = [(t, m) for t in plan.params.tasks for m in plan.params.finetune.methods]

    def place(cost: Finetuning) -> int:
        return order.index((cost.task, cost.method))

    waiting = sorted((cost for cost in plan.finetune if cost.pending), key=place)
    for number, group in groupby(waiting, key=place):
        members = list(group)
        table.add_row(
            *order[number],
            str(len(members)),
            str(sum(cost.num_trials for cost in members)),
            _shown(_sum(members, "num_steps"), str),
            _shown(_sum(members, "tokens"), _millions),
            _shown(_sum(members, "flops"), _flops),
            _shown(_sum(members, "seconds"), duration),
            _shown(max((c.memory_bytes for c in members if c.memory_bytes), default=None), size),
            _shown(_sum(members, "disk_bytes"), size),
        )
    return table


def _totals_table(plan: Estimate) -> Table:
    table = _table("What is to run", ("",), ("stages", "tokens", "FLOPs", "time", "memory", "disk"))
    names = {
        "pretrain": "pretraining",
        "finetune": "fine-tuning",
        "others": "other stages",
        "all": "in all",
    }
    for part, total in totals(plan).items():
        table.add_row(
            names[part],
            str(total["stages"]),
            _shown(total["tokens"], _millions),
            _shown(total["flops"], _flops),
            _shown(total["seconds"], duration),
            _shown(total["memory_bytes"], size),
            _shown(total["disk_bytes"], size),
        )
    return table


def _table(title: str, texts: Iterable[str], numbers: Iterable[str]) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
    )
    for column in texts:
        table.add_column(column, overflow="fold")
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def notes(plan: Estimate) -> Iterator[str]:
    """What the numbers rest on, and what they leave out."""
    if not plan.stages:
        yield "Nothing to run: every stage is up to date."
        return
    yield f"{_stages(plan.stages)} would run, at most."
    waiting = [cost for cost in (*plan.pretrain, *plan.finetune) if cost.pending]
    sources = Counter(c.speed_from for c in (*waiting, *plan.others) if c.speed_from)
    if sources:
        listed = ", ".join(f"{source} ({n})" for source, n in sources.most_common())
        yield f"Time: without the starts of processes, by the speed of {listed}."
    if sources[CALIBRATION]:
        yield (
            "Calibration: each model was trained for some seconds just now, and some files of what "
            "takes long to read were read; what else the machine was doing slowed that down."
        )
    if any(cost.assumes_lengths for cost in plan.finetune if cost.pending):
        longest = plan.params.finetune.max_tokens
        yield (
            f"Tokens: texts of {longest} (finetune.max_tokens, the most) where a task or its "
            "tokenizer is not prepared as yet."
        )
    if any(cost.leaves_out_rows for cost in plan.finetune if cost.pending):
        yield "Left out: the prediction of all rows of a file, which are counted when it is read."
    if number := sum(other.seconds is None for other in plan.others):
        stages = "other stage" if number == 1 else "other stages"
        yield f"Left out: the time of {number} {stages}, of a kind that has not run here as yet."
    if number := sum(_is_unknown(cost) for cost in waiting):
        yield f"Left out: {number} trainings whose size is known only when others have run."
    if not waiting:
        return
    yield (
        "Memory: the most that one training's process holds, as it was measured, else as the sizes "
        f"of weights and activations tell; {plan.side_by_side} trials run side by side."
    )
    yield "Disk: weights that are kept, heads left out; once more in DVC's cache where it copies."


def _stages(stages: list[str]) -> str:
    """How many there are of each kind."""
    kinds = Counter(stage.partition("@")[0] for stage in stages)
    return ", ".join(f"{n} {kind}" if n > 1 else kind for kind, n in kinds.items())


def _shown(value: Any, written: Callable[[Any], str]) -> str:
    return UNKNOWN if value is None else written(value)


def _millions(number: int) -> str:
    return f"{number / 1e6:.2f}M"


def _flops(number: float) -> str:
    return f"{number:.1e}"


def duration(seconds: float) -> str:
    """Two digits or so of a time."""
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * length:
            number = seconds / length
            return f"{number:.1f} {unit}" if number < 10 else f"{number:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def size(number: float) -> str:
    """Bytes, in decimal units."""
    for unit, length in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= length:
            value = number / length
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{number:.0f} B"


if __name__ == "__main__":
    main()
