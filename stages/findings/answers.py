"""The answer for each task and label budget: what to use, and how sure it is better than the rest.

The best model and the best baseline are each chosen by their mean validation score, and their
difference is measured on test rows; so it is no larger than in truth because of the choice. With
limits of size and speed (``answer:`` of params.yaml) the choice is among what is within them; they
are ignored if nothing is.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean

from stages.core.params import AnswerLimits
from stages.evaluation.calibration import CoverageRecord
from stages.evaluation.confusion import ConfusionRecord
from stages.evaluation.metrics import merit
from stages.evaluation.moderation import Moderation
from stages.evaluation.statistics import holm
from stages.findings.cells import Cell, Scores
from stages.findings.confusions import worst_errors
from stages.findings.contrasts import unit_of
from stages.findings.costs import Costs, measured_mean, total_flops, weights_bytes
from stages.findings.effects import LEADS_LEVEL, Trials, lead, verdict_at
from stages.findings.facts import (
    Answer,
    Calibration,
    Choice,
    Estimate,
    Lead,
    LeadCertainty,
    LimitViolation,
    Score,
    ScoreRow,
    ScoreTable,
    Verdict,
)
from stages.findings.ranking import Ranked

DIGITS = 9  # decimals of a mean that are compared; later ones are rounding errors
Violations = Mapping[Cell, Sequence[LimitViolation]]


def choice_of(cell: Cell, costs: Costs) -> Choice:
    """Returns a cell as a choice, with its costs."""
    records, is_classical = costs.of_trials([cell]), cell.is_baseline
    flops = total_flops(cell)
    return Choice(
        model=cell.group,
        method=cell.method,
        is_baseline=is_classical,
        score=Estimate(cell.mean.value, cell.mean.low, cell.mean.high),
        validation=cell.validation,
        num_params=None if is_classical else cell.amounts["num_params"],
        finetune_flops=float(cell.amounts["finetune_flops"] or 0),
        flops=None if cell.is_external or flops is None else float(flops),
        finetune_s=fmean(record.wall_time_s for record in records) if records else None,
        latency_s=measured_mean(record.latency_s for record in records),
        texts_per_s=measured_mean(record.texts_per_s for record in records),
        weights_bytes=weights_bytes(cell.trials),
    )


def violations(scores: Scores, costs: Costs, limits: AnswerLimits) -> Violations:
    """Returns the cells outside the limits, each with the limits that it exceeds."""
    stated = limits.model_dump(exclude_none=True)
    by_cell = {cell: [*_violations(cell, costs, stated)] for cell in scores.cells}
    return {cell: of_cell for cell, of_cell in by_cell.items() if of_cell}


def _violations(cell: Cell, costs: Costs, stated: Mapping[str, float]) -> Iterator[LimitViolation]:
    if cell.is_baseline and not cell.is_external:
        return
    choice = choice_of(cell, costs)
    measured = {
        "max_weights_mb": choice.weights_bytes and choice.weights_bytes / 1e6,
        "max_latency_ms": choice.latency_s and 1000 * choice.latency_s,
        "min_texts_per_s": choice.texts_per_s,
    }
    for limit, allowed in stated.items():
        value, sign = measured[limit], -1 if limit.startswith("min_") else 1
        if value is None or sign * value > sign * allowed:
            yield LimitViolation(limit=limit, allowed=allowed, measured=value)


def preference(cell: Cell) -> tuple[float, float]:
    """Returns a key that sorts cells: the better test score first, then the cheaper."""
    return -round(cell.merit, DIGITS), float(cell.amounts["finetune_flops"] or 0)


def _by_validation(cell: Cell) -> tuple[float, float]:
    score = cell.mean.value if cell.validation is None else cell.validation
    return -round(merit(cell.metric, score), DIGITS), preference(cell)[1]


def chosen(cells: Sequence[Cell]) -> Cell | None:
    """Returns the cell with the best validation score, the cheaper of equal ones. A baseline
    without validation counts with its test score, so that the model's lead is no larger than in
    truth; a model without validation is chosen only if none has it."""
    validated = [c for c in cells if c.is_baseline or c.validation is not None]
    return min(validated or cells, key=_by_validation, default=None)


@dataclass(frozen=True, eq=False)
class Study:
    """What answers are made of."""

    scores: Scores
    trials: Trials
    moderation: Moderation
    costs: Costs
    outside: Violations
    num_labels: Mapping[str, Mapping[str, int]]  # by task and label budget
    confusion: Mapping[str, Sequence[ConfusionRecord]]  # by task
    coverage: Mapping[str, Sequence[CoverageRecord]]  # by task


def answers(study: Study) -> list[Answer]:
    """Returns the answers, by task and then by label budget, the largest first. The leads of all
    are corrected together (Holm)."""
    scores, made = study.scores, list[Answer]()
    for task, budget in product(scores.tasks, [*reversed(scores.label_budgets)]):
        models, baselines = scores.run_cells(task, budget), scores.baseline_cells(task, budget)
        if models:
            made.append(_answer(study, models, baselines))
    tested = [
        (i, answer.lead)
        for i, answer in enumerate(made)
        if answer.lead and answer.lead.p is not None and answer.lead.verdict is not Verdict.ONE_SEED
    ]
    corrected = holm([of_answer.p or 0.0 for _, of_answer in tested])
    for (i, of_answer), p_holm in zip(tested, corrected, strict=True):
        made[i] = replace(made[i], lead=_with_verdict(of_answer, p_holm))
    return made


def _answer(study: Study, models: Sequence[Cell], baselines: Sequence[Cell]) -> Answer:
    outside, costs, every = study.outside, study.costs, [*models, *baselines]
    if all(cell in outside for cell in every):
        outside = {}
    within = [[c for c in cells if c not in outside] for cells in (models, baselines)]
    model, baseline = map(chosen, within)
    best_two = sorted(filter(None, (model, baseline)), key=preference)
    recommended, task = best_two[0], models[0].task
    others = sorted((c for cells in within for c in cells), key=preference)
    best_on_test = min(every, key=preference)

    def choice(cell: Cell | None) -> Choice | None:
        return None if cell is None else choice_of(cell, costs)

    next_best = [cell for cell in others if cell.group != recommended.group]
    return Answer(
        task=task,
        label_budget=recommended.label_budget,
        num_labels=study.num_labels[task][recommended.label_budget],
        metric=recommended.metric,
        recommended=choice_of(recommended, costs),
        model=choice(model),
        baseline=choice(baseline),
        lead=_lead(study, model, baseline) if model and baseline else None,
        best_on_test=choice_of(best_on_test, costs),
        next_best=choice(next_best[0] if next_best else None),
        cheapest_as_good=choice(_cheapest(study.moderation, recommended, next_best)),
        smaller=choice(_smaller(recommended, next_best)),
        calibration=_calibration(recommended, study.coverage[task]),
        confused=worst_errors(recommended, study.confusion[task]),
        violations=tuple(outside.get(best_on_test, ())),
        num_seeds=recommended.sample.num_units,
    )


def _lead(study: Study, model: Cell, baseline: Cell) -> Lead:
    """Returns the lead before the correction for the number of leads."""
    measured = lead(study.trials, model, baseline)
    is_ahead = preference(model) < preference(baseline)
    return Lead(
        estimate=measured.estimate(study.moderation.confidence),
        p=measured.p,
        p_holm=None,
        verdict=Verdict.ONE_SEED if model.has_one_pretraining_seed else Verdict.NOT_TESTED,
        certainty=LeadCertainty.UNTESTED if is_ahead else LeadCertainty.BASELINE,
    )


def _with_verdict(measured: Lead, p_holm: float) -> Lead:
    verdict = verdict_at(measured.estimate, p_holm, LEADS_LEVEL)
    certainty = measured.certainty
    if certainty is not LeadCertainty.BASELINE:
        certainty = {
            Verdict.SIGNIFICANT: LeadCertainty.LEADS,
            Verdict.UNSURE: LeadCertainty.UNSURE,
        }.get(verdict, LeadCertainty.OPEN)
    return replace(measured, p_holm=p_holm, verdict=verdict, certainty=certainty)


def _cheapest(moderation: Moderation, best: Cell, others: Sequence[Cell]) -> Cell | None:
    """Returns the cell with the fewest FLOPs of fine-tuning of those that are not significantly
    worse than ``best`` (the interval of the difference includes 0) and need fewer; or None."""

    def flops(cell: Cell) -> float:
        return float(cell.amounts["finetune_flops"] or 0)

    for cell in sorted(others, key=lambda c: (flops(c), preference(c))):
        if flops(cell) >= flops(best) or cell.is_external:
            continue
        difference = moderation.difference(best.key, cell.key)
        if difference.variance is not None and not difference.excludes_zero:
            return cell
    return None


def _smaller(best: Cell, others: Sequence[Cell]) -> Cell | None:
    """Returns the best cell of another model that uses fewer parameters than ``best``, or None."""
    limit = best.amounts["num_params"]
    if best.is_baseline or limit is None:
        return None
    fewer = (c for c in others if not c.is_baseline and (c.amounts["num_params"] or limit) < limit)
    return min(fewer, key=preference, default=None)


def _calibration(cell: Cell, records: Sequence[CoverageRecord]) -> Calibration | None:
    """Returns the calibration of a cell; None if its predictions have no probabilities."""
    own = [record for record in records if record.key.cell == cell.key]
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


# The table of scores -------------------------------------------------------------------------


def score_table(study: Study, made: Sequence[Answer], ranked: Sequence[Ranked]) -> ScoreTable:
    """Returns all scores, with the ranks of ``findings.ranking``."""
    scores = study.scores
    as_good = {
        cell
        for task, budget in product(scores.tasks, scores.label_budgets)
        for cell in _as_good(study, task, budget)
    }
    ranks = {(r.task, r.method, r.label_budget, r.model): r for r in ranked}
    recommended: dict[tuple[str, str, str], list[str]] = {}
    for answer in made:
        key = answer.recommended.model, answer.recommended.method, answer.label_budget
        recommended.setdefault(key, []).append(answer.task)
    cells_of: dict[tuple[str, str, str], dict[str, Cell]] = {}
    for cell in scores.cells:
        cells_of.setdefault((cell.group, cell.method, cell.label_budget), {})[cell.task] = cell
    units = {unit_of(metric) for metric in scores.metrics.values()}

    def score_of(cell: Cell) -> Score:
        method = scores.methods[0] if cell.is_baseline else cell.method
        rank = ranks.get((cell.task, method, cell.label_budget, cell.group))
        return Score(
            estimate=Estimate(cell.mean.value, cell.mean.low, cell.mean.high),
            num_trials=len(cell.trials),
            as_good=cell in as_good,
            lowest_rank=rank.lowest_rank if rank else None,
            highest_rank=rank.highest_rank if rank else None,
        )

    rows = []
    for (name, method, budget), cells in cells_of.items():
        records, first = study.costs.of_trials(cells.values()), next(iter(cells.values()))
        is_whole = len(units) == 1 and len(cells) == len(scores.tasks)
        rows.append(
            ScoreRow(
                model=name,
                method=method,
                label_budget=budget,
                is_baseline=first.is_baseline,
                recommended_for=tuple(recommended.get((name, method, budget), ())),
                scores={task: score_of(cell) for task, cell in cells.items()},
                mean=fmean(cell.mean.value for cell in cells.values()) if is_whole else None,
                num_params=first.amounts["num_params"] or None,
                finetune_s=measured_mean(record.wall_time_s for record in records),
                latency_s=measured_mean(record.latency_s for record in records),
            )
        )
    metric = next(iter(scores.metrics.values()))
    rows.sort(key=lambda row: math.inf if row.mean is None else -merit(metric, row.mean))
    return ScoreTable(tuple(scores.tasks), scores.metrics, tuple(rows))


def _as_good(study: Study, task: str, budget: str) -> Iterator[Cell]:
    """Yields the best cell and those that are not significantly worse, after Holm's correction for
    their number."""
    scores, moderation = study.scores, study.moderation
    cells = [*scores.run_cells(task, budget), *scores.baseline_cells(task, budget)]
    if not cells:
        return
    best, *others = sorted(cells, key=preference)
    yield best
    p_values = [
        moderation.difference(best.key, cell.key).p_value or lead(study.trials, best, cell).p
        for cell in others
    ]
    corrected = holm([1.0 if p is None else p for p in p_values])
    for cell, p, p_holm in zip(others, p_values, corrected, strict=True):
        if p is not None and p_holm >= 1 - moderation.confidence:
            yield cell
