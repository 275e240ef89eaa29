"""The answer for each task and label budget: what to use, and how sure it is better than the rest.

The best model and the best baseline are each chosen by their mean validation score, and their
difference is measured on test rows; so it is no larger than in truth because of the choice. With
limits of size and speed (``answer:`` of params.yaml) the choice is among what is within them; they
are ignored if nothing is.
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
from stages.findings.facts import (
    Answer,
    Calibration,
    Confusion,
    Lead,
    LimitViolation,
)
from stages.findings.tables import cost_records, measured_mean, weights_bytes

if TYPE_CHECKING:
    from stages.findings.results import Results

MAX_ERRORS = 3


def answers(results: "Results") -> list[Answer]:
    """Returns the answers, by task and then by label budget, the largest first. The leads of all
    are corrected together (Holm)."""
    made = [
        _answer(results, models, results.baseline_cells(task, budget))
        for task, budget in product(results.params.tasks, [*reversed(results.budgets)])
        if (models := results.model_cells(task, budget))
    ]
    leads = iter(judged([answer.lead for answer in made if answer.lead], LEADS_LEVEL))
    return [replace(answer, lead=next(leads)) if answer.lead else answer for answer in made]


def _answer(results: "Results", models: Sequence[Cell], baselines: Sequence[Cell]) -> Answer:
    every, task = [*models, *baselines], models[0].task
    outside = {cell: violated for cell in every if (violated := [*_violations(results, cell)])}
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
    cheapest = _cheapest(results, recommended, others)
    limit = 0 if recommended.is_baseline else recommended.amounts["num_params"] or 0
    fewer = (c for c in others if not c.is_baseline and (c.amounts["num_params"] or limit) < limit)
    smaller = next(fewer, None)
    return Answer(
        task=task,
        label_budget=recommended.label_budget,
        num_labels=results.num_labels(task, recommended.label_budget),
        metric=recommended.metric,
        recommended=recommended.choice,
        model=model.choice if model else None,
        baseline=baseline.choice if baseline else None,
        lead=ahead,
        best_on_test=best_on_test.choice,
        next_best=others[0].choice if others else None,
        cheapest_as_good=cheapest.choice if cheapest else None,
        smaller=smaller.choice if smaller else None,
        calibration=_calibration(results, recommended),
        confused=_confused(results, recommended),
        violations=tuple(outside.get(best_on_test, ())),
        num_seeds=recommended.sample.num_units,
    )


def _violations(results: "Results", cell: Cell) -> Iterator[LimitViolation]:
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
            yield LimitViolation(limit=limit, allowed=allowed, measured=value)


def _chosen(cells: Sequence[Cell]) -> Cell | None:
    """Returns the cell with the best validation score, the cheaper of equal ones. A baseline
    without validation counts with its test score, so that the model's lead is no larger than in
    truth; a model without validation is chosen only if none has it."""

    def by_validation(cell: Cell) -> tuple[float, float]:
        score = cell.mean.value if cell.validation is None else cell.validation
        return -round(merit(cell.metric, score), DIGITS), cell.finetune_flops

    validated = [c for c in cells if c.is_baseline or c.validation is not None]
    return min(validated or cells, key=by_validation, default=None)


def _cheapest(results: "Results", best: Cell, others: Sequence[Cell]) -> Cell | None:
    """Returns the cell with the fewest FLOPs of fine-tuning of those that are not significantly
    worse than ``best`` (the interval of the difference includes 0) and need fewer; or None."""
    for cell in sorted(others, key=lambda c: (c.finetune_flops, c.preference)):
        if cell.finetune_flops >= best.finetune_flops or cell.is_external:
            continue
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
    answered: dict[float, tuple[float, float | None]] = {}
    for stated in dict.fromkeys(record.stated_accuracy for record in own):
        at = [record for record in own if record.stated_accuracy == stated]
        number = sum(record.num_answered for record in at)
        right = sum(record.num_right for record in at)
        share = number / sum(record.num_test for record in at)
        answered[stated] = share, right / number if number else None
    scaled = [e for record in own if (e := record.calibrated_error) is not None]
    return Calibration(
        mean_probability=fmean(t.mean_probability or 0.0 for t in trials),
        accuracy=fmean(t.accuracy or 0.0 for t in trials),
        calibration_error=fmean(record.calibration_error for record in own),
        calibrated_error=fmean(scaled) if len(scaled) == len(own) else None,
        answered=answered,
    )


def _confused(results: "Results", cell: Cell) -> tuple[Confusion, ...]:
    """Returns the commonest errors of a cell by their number of rows (or words); empty if the task
    has no classes."""
    key = cell.model, cell.method, cell.label_budget
    rows = [r for r in results.confusion[cell.task] if (r.model, r.method, r.label_budget) == key]
    totals: Counter[str] = Counter()
    for row in rows:
        totals[row.answer] += row.number
    errors = [row for row in rows if row.answer != row.prediction and row.number]
    errors.sort(key=lambda row: (-row.number, row.answer, row.prediction))
    return tuple(
        Confusion(
            task=cell.task,
            answer=row.answer,
            prediction=row.prediction,
            share=row.number / totals[row.answer],
        )
        for row in errors[:MAX_ERRORS]
    )
