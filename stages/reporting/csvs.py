"""The files of numbers in reports/: their columns and rows.

Scores and differences are as stored (0.93, not 93), with six decimals; a difference is b less a.
P-values and degrees of freedom have three digits. An empty field is unknown or does not exist.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from stages.core.artifacts import Json
from stages.evaluation.records import budget_order
from stages.findings.facts import Answer, Contrast, Estimate, Interaction, MainEffect
from stages.findings.results import Results
from stages.reporting.tables import amount

KEYS = (
    "study model architecture objective method task corpus pretrain_seed finetune_seed label_budget"
)
MAX_SUMMARY_VALUES = 20
MEASURED = (
    *("processor_time_s", "wall_time_s", "peak_memory_bytes", "hardware"),
    "threads",
)
TESTED = "effect low high df p_value p_holm verdict"
COLUMNS = {
    name: columns.split()
    for name, columns in {
        "trials": f"{KEYS} num_params num_trained_params pretrain_tokens pretrain_flops "
        "lineage_tokens lineage_flops finetune_flops lr num_pretrained_params used_architecture "
        "lineage_bytes best_epoch num_epochs num_steps last_train_loss best_is_last "
        "chosen_in_warmup still_improving converged C num_tries at_edge metric value "
        "validation_score calibration_error rare_class average_precision recall_at_precision",
        "costs": f"{KEYS} wall_time_s peak_memory_bytes processor_time_s "
        "weights_bytes latency_s texts_per_s tokens_per_s hardware threads side_by_side "
        + " ".join(f"pretrain_{name}" for name in MEASURED),
        "scores": "task model method label_budget num_labels metric mean low high num_trials "
        "as_good lowest_rank highest_rank",
        "effects": "axis level_a level_b second_axis second_level_a second_level_b metric "
        f"num_tasks num_pairs num_seeds {TESTED} also_differs",
        "contrasts": "axis task label_budget_a label_budget_b model_a model_b method_a method_b "
        f"level_a level_b metric mean_a mean_b {TESTED} test basis also_differs",
        "answer": "task label_budget model method metric mean low high certainty baseline lead "
        "lead_low lead_high p_value p_holm best_on_test next_best cheapest_as_good smaller "
        "num_seeds",
        "confusion": "task model method label_budget answer prediction share",
        "doubtful_labels": "task id label likelier_label probability text",
        "reliability": "task model method label_budget number mean_probability accuracy",
        "coverage": "task model pretrain_seed method finetune_seed label_budget num_validation "
        "num_test temperature calibration_error calibrated_error stated_accuracy min_confidence "
        "num_answered num_right",
        "estimates": "task model pretrain_seed estimate value num_rows num_states flops reason",
    }.items()
}


def files(results: Results) -> dict[str, list[Json]]:
    """Returns the rows of reports/NAME.csv by NAME; ``COLUMNS`` has their columns."""
    study = {"study": results.params.study}
    return {
        "trials": [study | _fields(trial) for trial in results.trials],
        "costs": [study | row for row in _costs(results)],
        "scores": [*_scores(results)],
        "effects": [*map(_effect, results.effects), *map(_interaction, results.interactions)],
        "contrasts": [*map(_contrast, results.contrasts)],
        "answer": [*_answers(results)],
        "confusion": [*_confusions(results)],
        "doubtful_labels": [
            {"task": task} | asdict(record)
            for task, records in results.doubtful_labels.items()
            for record in records
        ],
        "estimates": [
            {"task": task} | _fields(record)
            for task, records in results.estimates.items()
            for record in records
        ],
        "reliability": [*_of_recommended(results, results.reliability)],
        "coverage": [*_of_recommended(results, results.coverage)],
    }


def _fields(record: Any) -> Json:
    """Returns the fields of a row of ``evaluation.records``, and its model."""
    return {"model": record.model} | asdict(record)


def _six(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _three(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.3g}")


def _ends(estimate: Estimate | None, value: str, prefix: str = "") -> Json:
    if estimate is None:
        return {}
    ends = {f"{prefix}low": _six(estimate.low), f"{prefix}high": _six(estimate.high)}
    return {value: _six(estimate.value)} | ends


def _costs(results: Results) -> Iterator[Json]:
    for trial in results.trials:
        if cost := results.finetuning_costs.get(trial.key):
            pretraining = results.pretraining_costs[trial.checkpoint]
            before = {f"pretrain_{name}": pretraining.get(name) for name in MEASURED}
            yield _fields(trial) | _fields(cost) | before


def _scores(results: Results) -> Iterator[Json]:
    """Yields a row for each cell, for ``dvc plots`` and the cards of exported models."""
    table = results.scores_table
    for row in table.rows:
        for task, score in row.scores.items():
            yield {
                **{"task": task, "model": row.model, "method": row.method},
                **{"label_budget": row.label_budget, "metric": table.metrics[task]},
                **{"num_labels": results.num_labels(task, row.label_budget)},
                **_ends(score.estimate, "mean"),
                **{"num_trials": score.num_trials, "as_good": int(score.as_good)},
                **{"lowest_rank": score.lowest_rank, "highest_rank": score.highest_rank},
            }


def _differs(differences: Iterable[Any]) -> str:
    return "; ".join(f"{d.name}: {amount(d.a)} vs. {amount(d.b)}" for d in differences)


def _effect(effect: MainEffect) -> Json:
    about = ("axis", "level_a", "level_b", "metric", "num_pairs", "num_seeds")
    return {
        **{name: getattr(effect, name) for name in about},
        **_ends(effect.estimate, "effect"),
        **{"df": _three(effect.df), "p_value": _three(effect.p), "p_holm": _three(effect.p_holm)},
        **{"num_tasks": len(effect.tasks), "verdict": effect.verdict.value},
        "also_differs": _differs(effect.also_differs),
    }


def _interaction(found: Interaction) -> Json:
    about = ("axis", "level_a", "level_b", "second_axis", "second_level_a", "second_level_b")
    return {
        **{name: getattr(found, name) for name in (*about, "num_pairs")},
        **_ends(found.estimate, "effect"),
        **{"p_value": _three(found.p), "verdict": found.verdict.value},
    }


def _contrast(contrast: Contrast) -> Json:
    about = ("axis", "level_a", "level_b", "metric")
    sides: Json = {"task": contrast.a.task}
    for name, cell in (("a", contrast.a), ("b", contrast.b)):
        sides |= {f"model_{name}": cell.model, f"method_{name}": cell.method}
        sides |= {f"label_budget_{name}": cell.label_budget}
        sides |= {f"mean_{name}": _six(cell.score.value)}
    return {
        **{name: getattr(contrast, name) for name in about},
        **sides,
        **{"test": contrast.estimate.test, "basis": contrast.estimate.basis},
        **_ends(contrast.estimate, "effect"),
        **{"df": _three(contrast.df), "p_value": _three(contrast.p)},
        **{"p_holm": _three(contrast.p_holm), "verdict": contrast.verdict.value},
        "also_differs": _differs(contrast.also_differs),
    }


def _answers(results: Results) -> Iterator[Json]:
    for answer in results.answers:
        choice, lead = answer.recommended, answer.lead
        others = ("best_on_test", "next_best", "cheapest_as_good", "smaller")
        yield {
            **{"task": answer.task, "label_budget": answer.label_budget, "model": choice.model},
            **{"method": choice.method, "metric": answer.metric, "num_seeds": answer.num_seeds},
            **_ends(choice.score, "mean"),
            **{"certainty": lead.certainty.value if lead else None},
            **{"baseline": answer.baseline.model if answer.baseline else None},
            **_ends(lead.estimate if lead else None, "lead", "lead_"),
            **{"p_value": _three(lead.p) if lead else None},
            **{"p_holm": _three(lead.p_holm) if lead else None},
            **{name: c.model for name in others if (c := getattr(answer, name))},
        }


def _at_largest_budget(results: Results) -> list[Answer]:
    budgets = sorted((answer.label_budget for answer in results.answers), key=budget_order)
    return [answer for answer in results.answers if answer.label_budget == budgets[-1]]


def _of_recommended(results: Results, records: Any) -> Iterator[Json]:
    """Yields the ``records`` (by task) of the recommended choices at the largest label budget,
    rounded and with their task."""
    for answer in _at_largest_budget(results):
        key = (answer.recommended.model, answer.recommended.method, answer.label_budget)
        for record in records.get(answer.task, ()):
            if (record.model, record.method, record.label_budget) == key:
                values = {
                    name: _six(value) if isinstance(value, float) else value
                    for name, value in _fields(record).items()
                }
                yield {"task": answer.task} | values


def _confusions(results: Results) -> Iterator[Json]:
    for answer in _at_largest_budget(results):
        choice = answer.recommended
        about = {"task": answer.task, "model": choice.model, "method": choice.method}
        for c in answer.confusion:
            pair = {"answer": c.answer, "prediction": c.prediction, "share": _six(c.share)}
            yield about | {"label_budget": answer.label_budget} | pair


def metrics(results: Results) -> Json:
    """Returns reports/metrics.json: task -> model -> method -> label budget -> numbers."""
    nested: Json = {}
    for row in results.scores_table.rows:
        for task, score in row.scores.items():
            numbers = {k: v for k, v in _ends(score.estimate, "mean").items() if v is not None}
            of_model = nested.setdefault(task, {}).setdefault(row.model, {})
            of_model.setdefault(row.method, {})[row.label_budget] = numbers
    return nested


def summary(results: Results) -> Json:
    """Returns reports/summary.json, the metrics file of dvc.yaml: the recommended score and the
    lead on each task, and the processor time of all training in minutes."""
    flat: Json = {}
    for answer in _at_largest_budget(results):
        flat[f"{answer.task}.score"] = round(answer.recommended.score.value, 4)
        if answer.lead:
            flat[f"{answer.task}.lead"] = round(answer.lead.estimate.value, 4)
    costs = [*results.pretraining_costs.values(), *map(vars, results.finetuning_costs.values())]
    seconds = sum(cost["processor_time_s"] for cost in costs)
    return dict([*flat.items()][:MAX_SUMMARY_VALUES]) | {"minutes": round(seconds / 60, 1)}
