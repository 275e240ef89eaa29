"""What else could be chosen, and what the choice takes.

Sentences give means and make no claim of a difference; contrasts do. Names are in backticks.
"""

from collections.abc import Iterator, Sequence
from statistics import fmean

from stages.evaluation.records import CLASSICAL, CostRecord
from stages.evaluation.statistics import Interval
from stages.reporting.comparison.best_runs import BestRun, best_runs
from stages.reporting.comparison.cells import Cell
from stages.reporting.comparison.convergence import faults
from stages.reporting.comparison.pretraining_costs import pretraining
from stages.reporting.comparison.results import Results, trial_key
from stages.reporting.comparison.score_against_cost import total_flops
from stages.reporting.number_format import compact, price, seconds
from stages.reporting.score_format import shown


def name_of(results: Results, cell: Cell) -> str:
    """A run with its method, or a baseline."""
    if cell.group in results.params.baselines:
        return f"`{cell.group}`, a classical baseline"
    return f"`{cell.group}` with `{cell.method}`"


def next_best(results: Results, best: Cell, methods: Sequence[str]) -> Cell | None:
    """The best of the other runs, with one of the ``methods``, and baselines; None if there are
    none."""
    others = [
        cell
        for cell in results.cells
        if (cell.task, cell.label_budget) == (best.task, best.label_budget)
        and cell.group != best.group
        and cell.method in (*methods, CLASSICAL)
    ]
    return max(others, key=lambda cell: cell.merit, default=None)


def smaller(results: Results, best: Cell, methods: Sequence[str]) -> Cell | None:
    """The best of the other runs with fewer weights in use, with one of the ``methods``; None if
    there are none, or ``best`` is a baseline. The weights that a method adds make no other run."""
    limit = best.amounts["num_params"]
    if best.group in results.params.baselines or limit is None:
        return None
    found = []
    for cell in results.run_cells(best.task, best.label_budget):
        size = cell.amounts["num_params"]
        is_other = cell.group != best.group and cell.method in methods
        if is_other and size is not None and size < limit:
            found.append(cell)
    return max(found, key=lambda cell: cell.merit, default=None)


def otherwise(results: Results, best: BestRun, methods: Sequence[str]) -> str:
    """What is next, what the best smaller model reaches, what was not tried or not trained to its
    end, and what is best with other numbers of labels; of runs with one of the ``methods``."""
    return " ".join([*_others(results, best, methods), *_unfinished(best.run)])


def _unfinished(run: Cell) -> Iterator[str]:
    """Of the best run."""
    if found := [*faults(run)]:
        yield (
            f"`{run.group}` with `{run.method}` may score otherwise after more steps: "
            f"{', '.join(found)} trials."
        )


def _others(results: Results, first: BestRun, methods: Sequence[str]) -> list[str]:
    found, best = [], first.best
    after = next_best(results, best, methods)
    if after and (first.run_is_ahead or after is not first.run):  # which is compared with it
        found.append(f"Next best: {name_of(results, after)}, {shown_mean(after)}.")
    if less := smaller(results, best, methods):
        size = compact(less.amounts["num_params"])
        named = f"{name_of(results, less)} ({size})"
        found.append(f"Best with fewer weights: {named}, {shown_mean(less)}.")
    if out := results.screened_out[best.task]:
        names = ", ".join(f"`{each.runs[0]}`" for each in out)
        found.append(f"Without a score, since an estimate screened them out: {names}.")
    others = [budget for budget in results.label_budgets if budget != best.label_budget]
    only = methods[0] if len(methods) == 1 else None
    elsewhere = best_runs(results, only)
    for budget in others:
        if found_there := elsewhere.get((best.task, budget)):
            there = found_there.best
            found.append(f"With {budget} labels: {name_of(results, there)}, {shown_mean(there)}.")
    if not others:
        found.append(f"Other numbers of labels than {best.label_budget} were not tried.")
    return found


def cheapest(results: Results, found: BestRun, methods: Sequence[str]) -> str:
    """What costs least of what may be as good as the best, the interval of the difference from
    which includes 0: a classical baseline, and of the runs, beside the best one, that of the fewest
    FLOPs."""
    parts, baseline = [], found.strongest
    if baseline and (baseline is found.best or includes_zero(found.effect)):
        parts.append(f"{name_of(results, baseline)}, {shown_mean(baseline)}: it trains no network.")
    if not found.run_is_ahead and found.effect.excludes_zero:
        return f"{parts[0]} No model may be as good."
    run = cheapest_run(results, found.run, methods)
    flops = total_flops(run)
    cost = "FLOPs unknown" if flops is None else f"{compact(flops)} FLOPs"
    times = ", ".join(f"{what} {seconds(time)}" for what, time in _times(results, run))
    best = "" if run is found.run else f" (the best model has {shown_mean(found.run)})"
    of_models = "Of the models: " if parts else ""
    named = f"{of_models}{name_of(results, run)}, {shown_mean(run)}{best}: {cost}"
    return " ".join([*parts, f"{named}{f' ({times})' if times else ''}."])


def cheapest_run(results: Results, best: Cell, methods: Sequence[str]) -> Cell:
    """Of the best run and those whose contrast with it has an interval that includes 0, with one of
    the ``methods``; runs of unknown cost are left out."""
    good = [best]
    for contrast in results.contrasts_of.get(best, []):
        other = contrast.b if contrast.a is best else contrast.a
        here = (other.label_budget, other.method in methods) == (best.label_budget, True)
        if here and contrast.is_tested and includes_zero(contrast.effect):
            good.append(other)
    known = [(flops, cell) for cell in good if (flops := total_flops(cell)) is not None]
    return min(known, key=lambda pair: pair[0])[1] if known else best


def includes_zero(effect: Interval) -> bool:
    return effect.variance is not None and not effect.excludes_zero


def _times(results: Results, cell: Cell) -> Iterator[tuple[str, float]]:
    """Measured here, on the mean: of the pretrainings of a run, and of one fine-tuning."""
    group = next(group for group in results.groups if group.name == cell.group)
    before = pretraining(results, group).wall_time_s
    if before and group.pretrained:
        yield "pretraining", before
    costs = _costs(results, cell)
    if costs:
        yield "fine-tuning", fmean(cost.wall_time_s for cost in costs)


def takes(results: Results, best: Cell) -> str:
    """What one training and its predictions took here, on the mean; "" if that was not measured, as
    of baselines."""
    costs = _costs(results, best)
    if not costs:
        return ""
    return price(
        wall_time_s=fmean(cost.wall_time_s for cost in costs),
        peak_memory_bytes=max(cost.peak_memory_bytes for cost in costs),
        texts_per_s=[cost.texts_per_s for cost in costs if cost.texts_per_s],
        hardware=costs[0].hardware,
    )


def _costs(results: Results, cell: Cell) -> list[CostRecord]:
    keys = map(trial_key, cell.trials)
    return [results.finetuning_costs[key] for key in keys if key in results.finetuning_costs]


def shown_mean(cell: Cell) -> str:
    return shown(cell.mean.value, cell.metric)
