"""The tables of scores, costs and estimates.

The interval of a rank follows from the comparisons with all others: the significantly better ones
rank above it, the significantly worse ones below it, and the rest above or below it (Mogstad et al.
2024, section 3). The comparisons of each are corrected for their number (Holm), so that the
interval contains the true rank at least as often as the study's confidence says.

FLOPs are counted; times and memory are measured on one machine.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import combinations, product
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import weightedtau

from stages.core.keys import CheckpointKey
from stages.core.params import NONE
from stages.evaluation.metrics import merit, unit_of
from stages.evaluation.records import CostRecord
from stages.evaluation.statistics import holm
from stages.evaluation.transferability import ESTIMATES
from stages.findings.cells import Cell, mean_of_known
from stages.findings.effects import lead
from stages.findings.facts import Agreement, ModelCost, Score, ScoreRow, ScoreTable
from stages.findings.models import ComparedModel

if TYPE_CHECKING:
    from stages.findings.results import Results

FEWEST = 4  # models for a rank correlation
MOST_RANKED = 40  # entries of a ranking, those with the best means
Bounds = tuple[int, int]  # the best and the worst possible rank


def score_table(results: "Results") -> ScoreTable:
    """Returns all scores."""
    places = [*product(results.params.tasks, results.budgets)]
    as_good = {cell for place in places for cell in _as_good(results, *place)}
    ranks: dict[Cell, Bounds] = {}
    methods = [*results.params.finetune.methods]
    for place, method in product(places, methods):
        for cell, bounds in _ranked(results, *place, method):
            # A baseline, which has no method, has its rank among models with the first one.
            if cell.method == method or method == methods[0]:
                ranks[cell] = bounds
    recommended = {answer.recommended for answer in results.answers}
    cells_of: dict[tuple[str, str, str], dict[str, Cell]] = {}
    for cell in results.cells:
        cells_of.setdefault((cell.model, cell.method, cell.label_budget), {})[cell.task] = cell
    metrics = {cell.task: cell.metric for cell in results.cells}
    has_one_unit = len({unit_of(metric) for metric in metrics.values()}) == 1

    def score(cell: Cell) -> Score:
        lowest, highest = ranks.get(cell, (None, None))
        return Score(
            estimate=cell.score,
            num_trials=len(cell.trials),
            as_good=cell in as_good,
            lowest_rank=lowest,
            highest_rank=highest,
        )

    rows = []
    for (name, method, budget), cells in cells_of.items():
        records, first = cost_records(results, cells.values()), next(iter(cells.values()))
        is_whole = has_one_unit and len(cells) == len(results.params.tasks)
        rows.append(
            ScoreRow(
                model=name,
                method=method,
                label_budget=budget,
                is_baseline=first.is_baseline,
                recommended_for=tuple(t for t, cell in cells.items() if cell in recommended),
                scores={task: score(cell) for task, cell in cells.items()},
                mean=fmean(cell.score.value for cell in cells.values()) if is_whole else None,
                num_params=first.amounts["num_params"] or None,
                finetune_s=measured_mean(record.wall_time_s for record in records),
                latency_s=measured_mean(record.latency_s for record in records),
            )
        )
    metric = next(iter(metrics.values()))
    rows.sort(key=lambda row: math.inf if row.mean is None else -merit(metric, row.mean))
    return ScoreTable(tuple(results.params.tasks), metrics, tuple(rows))


def _as_good(results: "Results", task: str, budget: str) -> Iterator[Cell]:
    """Yields the best cell and those that are not significantly worse, after Holm's correction for
    their number."""
    models, baselines = results.cells_at(task, budget)
    if not (models or baselines):
        return
    best, *others = sorted([*models, *baselines], key=lambda cell: cell.preference)
    yield best
    p_values = [
        results.moderation.difference(best.key, cell.key).p_value
        or lead(results.lines, best, cell).p
        for cell in others
    ]
    corrected = holm([1.0 if p is None else p for p in p_values])
    for cell, p, p_holm in zip(others, p_values, corrected, strict=True):
        if p is not None and p_holm is not None and p_holm >= 1 - results.confidence:
            yield cell


def _ranked(
    results: "Results", task: str, budget: str, method: str
) -> Iterator[tuple[Cell, Bounds]]:
    """Yields the best and the worst possible rank of all baselines and of all models with this
    method. A difference without an interval excludes neither order."""
    models, baselines = results.cells_at(task, budget)
    cells = [*(cell for cell in models if cell.method == method), *baselines]
    order = sorted(cells, key=lambda cell: -cell.merit)[:MOST_RANKED]
    effects = {
        (a, b): results.moderation.difference(a.key, b.key) for a, b in combinations(order, 2)
    }
    for cell in order:
        signed = [(e, 1 if cell is a else -1) for (a, b), e in effects.items() if cell in (a, b)]
        if all(effect.variance is None for effect, _ in signed):
            continue
        p_values = holm([1.0 if e.p_value is None else e.p_value for e, _ in signed])
        clear = [
            sign * merit(cell.metric, effect.value)
            for (effect, sign), p in zip(signed, p_values, strict=True)
            if p is not None and p < 1 - results.confidence
        ]
        ahead = sum(value < 0 for value in clear)  # others that are better
        behind = sum(value > 0 for value in clear)
        yield cell, (1 + ahead, 1 + len(signed) - behind)


def cost_records(results: "Results", cells: Iterable[Cell]) -> list[CostRecord]:
    """Returns the costs of the trials of cells; baselines have none."""
    keys = (trial.key for cell in cells for trial in cell.trials)
    return [results.finetuning_costs[key] for key in keys if key in results.finetuning_costs]


def model_costs(results: "Results") -> list[ModelCost]:
    """Returns what each model cost, as means over its seeds and all of its trials."""
    lineage_flops = {trial.checkpoint: trial.lineage_flops for trial in results.trials}
    costs = []
    for model in results.models:
        cells = [cell for cell in results.cells if cell.model == model.name]
        records = cost_records(results, cells)
        costs.append(
            ModelCost(
                model=model.name,
                pretrain_flops=mean_of_known([lineage_flops[key] for key in model.seeds]),
                pretrain_s=_pretraining_s(results, model),
                finetune_flops=fmean(t.finetune_flops for cell in cells for t in cell.trials),
                finetune_s=mean_of_known([record.wall_time_s for record in records]),
                latency_s=measured_mean(record.latency_s for record in records),
                peak_memory_bytes=max((r.peak_memory_bytes for r in records), default=None),
                weights_bytes=weights_bytes(cells),
            )
        )
    return costs


def _pretraining_s(results: "Results", model: ComparedModel) -> float | None:
    """Returns the seconds that pretraining a model and its parents (or teachers) took, as a mean
    over its seeds; None if a public checkpoint is among them."""
    runs, seconds = results.params.models, []
    for name, seed in model.seeds:
        of_seed = 0.0
        while name != NONE:
            if runs[name].is_public:
                return None
            of_seed += results.pretraining_costs[CheckpointKey(name, seed)]["wall_time_s"]
            name = runs[name].parent
        seconds.append(of_seed)
    return fmean(seconds)


def weights_bytes(cells: Iterable[Cell]) -> int | None:
    """Returns the most bytes of files that a prediction needs; None if unknown."""
    known = (t.weights_bytes for cell in cells for t in cell.trials if t.weights_bytes)
    return max(known, default=None)


def measured_mean(values: Iterable[float | None]) -> float | None:
    """Returns the mean of the values that were measured; None if none was."""
    known = [value for value in values if value]
    return fmean(known) if known else None


def agreements(results: "Results") -> list[Agreement]:
    """Returns the agreement of each estimate with the best scores of models at the largest label
    budget, by task. Estimates that are not defined for a task are left out."""
    agreements = []
    for task in results.params.tasks:
        best: dict[str, float] = {}
        models, _ = results.cells_at(task, results.budgets[-1])
        for cell in models:
            best[cell.model] = max(best.get(cell.model, cell.merit), cell.merit)
        for estimate in ESTIMATES:
            known: dict[str, list[float]] = {}
            for record in results.estimates[task]:
                is_of_model = record.estimate == estimate and record.model in best
                if is_of_model and record.value is not None:
                    known.setdefault(record.model, []).append(record.value)
            values = {name: fmean(of_model) for name, of_model in known.items()}
            tau = None
            if len(values) >= FEWEST:
                ranked = weightedtau([*values.values()], [best[name] for name in values])
                number = float(np.asarray(ranked)[0])
                tau = number if np.isfinite(number) else None
            if values:
                agreement = Agreement(task=task, estimate=estimate, values=values, tau=tau)
                agreements.append(agreement)
    return agreements
