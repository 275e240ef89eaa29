"""The answer for each task and label budget: what to use, and how sure it is better than the rest.

The best model and the best baseline are each chosen by their mean validation score, and their
difference is measured on test rows, so the choice does not inflate it. With limits of size and
speed (``answer:`` of params.yaml) the choice is among what is within them; they are ignored if
nothing is.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING

from stages.evaluation.metrics import merit
from stages.findings.cells import DIGITS, Cell
from stages.findings.effects import LEADS_LEVEL, judged, lead
from stages.findings.facts import Answer, Calibration, Confusion, Lead
from stages.findings.tables import cost_records, measured_mean, weights_bytes

if TYPE_CHECKING:
    from stages.findings.results import Results


def answers(results: "Results") -> list[Answer]:
    """Returns the answers, by task and then by label budget, the largest first. The leads of all
    are corrected together (Holm)."""
    made = [
        _answer(results, models, baselines)
        for place in product(results.params.tasks, [*reversed(results.budgets)])
        for models, baselines in [results.cells_at(*place)]
        if models
    ]
    leads = iter(judged([answer.lead for answer in made if answer.lead], LEADS_LEVEL))
    return [replace(answer, lead=next(leads)) if answer.lead else answer for answer in made]


def _answer(results: "Results", models: Sequence[Cell], baselines: Sequence[Cell]) -> Answer:
    every = [*models, *baselines]
    outside = {cell: violated for cell in every if (violated := (*_violations(results, cell),))}
    if len(outside) == len(every):
        outside = {}
    within = [[c for c in cells if c not in outside] for cells in (models, baselines)]
    model, baseline = map(_chosen, within)
    recommended = min((c for c in (model, baseline) if c), key=lambda c: c.preference)
    others = sorted((c for cells in within for c in cells), key=lambda c: c.preference)
    others = [cell for cell in others if cell.model != recommended.model]
    best_on_test = min(every, key=lambda c: c.preference)
    ahead = None
    if model and baseline:
        is_ahead = model.preference < baseline.preference
        ahead = Lead(**vars(lead(results.lines, model, baseline)), is_ahead=is_ahead)
    limit = 0 if recommended.is_baseline else recommended.amounts["num_params"] or 0
    fewer = (c for c in others if not c.is_baseline and (c.amounts["num_params"] or limit) < limit)
    return Answer(
        task=recommended.task,
        label_budget=recommended.label_budget,
        num_labels=results.num_labels(recommended.task, recommended.label_budget),
        metric=recommended.metric,
        recommended=recommended,
        model=model,
        baseline=baseline,
        lead=ahead,
        best_on_test=best_on_test,
        next_best=others[0] if others else None,
        cheapest_as_good=_cheapest(results, recommended, others),
        smaller=next(fewer, None),
        calibration=_calibration(results, recommended),
        confusion=_confusion(results, recommended),
        violations=outside.get(best_on_test, ()),
        num_seeds=recommended.sample.num_units,
    )


def _violations(results: "Results", cell: Cell) -> Iterator[str]:
    """Yields the limits of the study that a cell exceeds, or for which its value is unknown."""
    if cell.is_baseline and not cell.is_external:
        return
    records = cost_records(results, [cell])
    latency_s, num_bytes = measured_mean(r.latency_s for r in records), weights_bytes([cell])
    measured = {
        "max_weights_mb": num_bytes and num_bytes / 1e6,
        "max_latency_ms": latency_s and 1000 * latency_s,
        "min_texts_per_s": measured_mean(record.texts_per_s for record in records),
    }
    for limit, allowed in results.params.answer.model_dump(exclude_none=True).items():
        value, sign = measured[limit], -1 if limit.startswith("min_") else 1
        if value is None or sign * value > sign * allowed:
            yield limit


def _chosen(cells: Sequence[Cell]) -> Cell | None:
    """Returns the cell with the best validation score, the cheaper of equal ones. A baseline
    without validation counts with its test score, so that the model's lead is not inflated; a model
    without validation is chosen only if none has it."""

    def by_validation(cell: Cell) -> tuple[float, float]:
        score = cell.score.value if cell.validation is None else cell.validation
        return -round(merit(cell.metric, score), DIGITS), cell.finetune_flops

    validated = [c for c in cells if c.is_baseline or c.validation is not None]
    return min(validated or cells, key=by_validation, default=None)


def _cheapest(results: "Results", best: Cell, others: Sequence[Cell]) -> Cell | None:
    """Returns the cheapest cell, by FLOPs of fine-tuning, that is cheaper than ``best`` and not
    significantly worse (the interval of the difference includes 0); None if there is none."""
    for cell in sorted(others, key=lambda c: (c.finetune_flops, c.preference)):
        if cell.finetune_flops < best.finetune_flops and not cell.is_external:
            difference = results.moderation.difference(best.key, cell.key)
            if difference.variance is not None and not difference.excludes_zero:
                return cell
    return None


def _calibration(results: "Results", cell: Cell) -> Calibration | None:
    """Returns the calibration of a cell; None if its predictions have no probabilities."""
    own = [record for record in results.coverage[cell.task] if record.key.cell == cell.key]
    trials = [trial for trial in cell.trials if trial.mean_probability is not None]
    if not own or not trials:
        return None
    answered: dict[float, float] = {}
    for stated in dict.fromkeys(record.stated_accuracy for record in own):
        at = [record for record in own if record.stated_accuracy == stated]
        answered[stated] = sum(r.num_answered for r in at) / sum(r.num_test for r in at)
    scaled = [e for record in own if (e := record.calibrated_error) is not None]
    return Calibration(
        mean_probability=fmean(t.mean_probability or 0.0 for t in trials),
        accuracy=fmean(t.accuracy or 0.0 for t in trials),
        calibration_error=fmean(record.calibration_error for record in own),
        calibrated_error=fmean(scaled) if len(scaled) == len(own) else None,
        answered=answered,
    )


def _confusion(results: "Results", cell: Cell) -> tuple[Confusion, ...]:
    """Returns the pairs of classes of a cell; empty if the task has no classes."""
    key = cell.model, cell.method, cell.label_budget
    every = results.confusion[cell.task]
    rows = [r for r in every if (r.model, r.method, r.label_budget) == key and r.number]
    totals: Counter[str] = Counter()
    for row in rows:
        totals[row.answer] += row.number
    return tuple(
        Confusion(cell.task, r.answer, r.prediction, r.number, r.number / totals[r.answer])
        for r in rows
    )
