"""The columns and rows of the files of numbers in reports/."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import product

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.evaluation.estimates import LAYERS
from stages.evaluation.precision import SOURCES
from stages.evaluation.statistics import Interval
from stages.findings.carry_over import CarryOver
from stages.findings.cells import AMOUNTS
from stages.findings.confusions import confusion
from stages.findings.contrasts import Contrast
from stages.findings.costs import estimated_energy, gains
from stages.findings.coverage import coverages_of
from stages.findings.estimates import COMPARABLE, agreements
from stages.findings.labels_needed import LabelsNeeded
from stages.findings.questions import Question, unit_of
from stages.findings.ranking import Ranked
from stages.findings.results import Results
from stages.findings.training_sets import gain_of
from stages.findings.verdicts import Verdict
from stages.reporting.formats import ends, six_decimals, three_digits
from stages.reporting.words.answer import answer_rows
from stages.reporting.words.names import confound, seeds_of_contrast, verdict

KEYS = [
    *("study", "run", "architecture", "objective", "method", "task", "corpus", "pretrain_seed"),
    *("finetune_seed", "label_budget"),
]
MOST = 20  # numbers in summary.json
ENERGY = ("energy_j_estimate", "co2e_g_estimate")
COLUMNS = {
    "trials": [
        *KEYS,
        *("num_params", "num_trained_params", "pretrain_tokens", "pretrain_flops"),
        *("lineage_tokens", "lineage_flops", "finetune_flops", "lr"),
        *("num_pretrained_params", "used_architecture", "lineage_bytes"),
        *("best_epoch", "num_epochs", "num_steps", "last_train_loss", "best_is_last"),
        *("chosen_in_warmup", "still_improving", "converged", "C", "num_tries", "at_edge"),
        *("metric", "value"),
        *("calibration_error", "rare_class", "average_precision", "recall_at_precision"),
    ],
    "costs": [
        *KEYS,
        *("wall_time_s", "peak_memory_bytes", "pretrain_wall_time_s", "pretrain_peak_memory_bytes"),
        *("processor_time_s", *ENERGY, "weights_bytes", "latency_s", "texts_per_s"),
        *("tokens_per_s", "hardware", "threads", "side_by_side"),
        *("pretrain_processor_time_s", *(f"pretrain_{key}" for key in ENERGY)),
        *("pretrain_hardware", "pretrain_threads"),
        *("gained", "flops_per_gain", "wall_time_s_per_gain", "energy_j_estimate_per_gain"),
    ],
    "corpora": [
        *("run", "corpus", "tokenizer", "task", "method", "label_budget"),
        *("corpus_documents", "corpus_words", "corpus_types", "corpus_bytes", "corpus_tokens"),
        *("epochs", "divergence", "unseen_words", "unseen_types", "bits_per_byte"),
        *("own_bits_per_byte", "gain", "low", "high"),
    ],
    "answer": [
        *("task", "label_budget", "run", "method", "metric", "mean", "low", "high", "sure"),
        *("next_run", "next_method", "next_mean", "use", "against", "runs", "otherwise"),
    ],
    "estimates": [
        *("task", "run", "pretrain_seed", "estimate", "layers", "value", "layer", "num_rows"),
        *("num_states", "flops", "reason", "screened_out"),
    ],
    "agreement": [
        *("task", "method", "label_budget", "estimate", "layers", "runs"),
        *("num_checkpoints", "num_runs", "tau", "low", "high", "chosen", "best", "lost"),
        *("lost_at_random", "saved_flops"),
    ],
    "carry_over": [
        *("growth", "smaller", "larger", "task", "method", "label_budget", "runs", "num_pairs"),
        *("share", "low", "high", "over", "num_units"),
    ],
    "labels_needed": [
        *("task", "run", "method", "metric", "fewest_labels", "most_labels", "baselines"),
        *("reach", "labels", "low_reach", "low", "high_reach", "high", "basis"),
        *("doubled_from", "doubled_to", "gain_per_doubling", "gain_low", "gain_high"),
    ],
    "questions": [
        *("axis", "run_a", "run_b", "level_a", "level_b", "method", "label_budget", "num_tasks"),
        *("unit", "effect", "low", "high", "p_value", "p_holm", "df", "df_other_cells", "verdict"),
        *("largest_task", "largest_effect", "smallest_task", "smallest_effect"),
    ],
    "ranks": [
        *("scope", "method", "label_budget", "run", "mean", "rank", "lowest_rank", "highest_rank"),
    ],
    "scores": [
        *("task", "run", "method", "label_budget", "num_labels", "metric", "mean", "low", "high"),
    ],
    "confusion": [
        *("task", "run", "method", "label_budget", "answer", "prediction", "share"),
    ],
    "reliability": [
        *("task", "run", "method", "label_budget", "number", "mean_probability", "accuracy"),
    ],
    "coverage": [
        *("task", "run", "pretrain_seed", "method", "finetune_seed", "label_budget"),
        *("num_validation", "num_test", "temperature", "calibration_error", "calibrated_error"),
        *("stated_accuracy", "min_confidence", "num_answered", "num_right"),
    ],
    "contrasts": [
        *("axis", "task", "method", "label_budget", "run_a", "run_b", "level_a", "level_b"),
        *("mean_a", "mean_b", "effect", "low", "high", "p_value", "p_holm", "test"),
        *("df", "df_other_cells", "basis", "seeds", "resolved", "verdict", "seeds_needed"),
        *(f"{amount}_{side}" for amount in AMOUNTS for side in "ab"),
        "confounds",
        *(f"{about}_{source}" for about in ("share", "narrower") for source in SOURCES.values()),
    ],
}


def files(results: Results) -> dict[str, Iterable[Json]]:
    """Returns the rows of reports/NAME.csv by NAME; ``COLUMNS`` has their columns. An empty field
    is a number that does not exist or is unknown."""
    return {
        "trials": trial_rows(results),
        "costs": cost_rows(results),
        "corpora": corpus_rows(results),
        "answer": answer_rows(results),
        "estimates": estimate_rows(results),
        "agreement": agreement_rows(results),
        "carry_over": map(carry_over_row, results.carry_over),
        "labels_needed": map(labels_needed_row, results.labels_needed.values()),
        "questions": map(question_row, results.questions),
        "ranks": map(rank_row, results.rankings),
        "scores": score_rows(results),
        "confusion": confusion_rows(results),
        "reliability": reliability_rows(results),
        "coverage": coverage_rows(results),
        "contrasts": map(contrast_row, results.contrasts),
    }


def trial_rows(results: Results) -> list[Json]:
    measured = ("value", "calibration_error", "average_precision", "recall_at_precision")
    return [
        {"study": results.params.study, **_rounded(asdict(trial), *measured)}
        for trial in results.trials
    ]


def _rounded(row: Json, *keys: str) -> Json:
    return row | {key: six_decimals(row[key]) for key in keys}


def metrics(results: Results) -> Json:
    """Returns reports/metrics.json: task -> run -> method -> label budget -> numbers."""
    nested: Json = {}
    for cell in results.scores.cells:
        numbers = {"mean": cell.mean.value, "low": cell.mean.low, "high": cell.mean.high}
        place = nested.setdefault(cell.task, {}).setdefault(cell.group, {})
        place.setdefault(cell.method, {})[cell.label_budget] = {
            **{key: six_decimals(value) for key, value in numbers.items() if value is not None},
            "num_pretrain_seeds": cell.num_pretrain_seeds,
            "num_finetune_seeds": cell.num_finetune_seeds,
        }
    return nested


def summary(results: Results) -> Json:
    """Returns reports/summary.json, the metrics file of dvc.yaml, with at most ``MOST`` numbers:
    the best score and the gain of pretraining on each of the first tasks at the largest label
    budget, and the processor time of all training in minutes.

    The gain is that of the best run with a contrast to the same model from scratch. It is positive
    if pretraining is better.
    """
    flat: Json = {}
    budget = results.scores.label_budgets[-1]
    for task in results.scores.tasks[: (MOST - 1) // 2]:
        if best := results.best_runs[None].get((task, budget)):
            flat[f"{task}.score"] = round(best.best.mean.value, 4)
        compared = [
            (contrast.a, contrast.b)
            for contrast in results.contrasts
            if (contrast.axis, contrast.task, contrast.label_budget) == ("pretrained", task, budget)
        ]
        if compared:
            pretrained, scratch = max(compared, key=lambda pair: pair[0].merit)
            flat[f"{task}.gain"] = round(pretrained.merit - scratch.merit, 4)
    costs = [*results.pretraining_costs.values(), *map(vars, results.finetuning_costs.values())]
    flat["minutes"] = round(sum(cost["processor_time_s"] for cost in costs) / 60, 1)
    return flat


def cost_rows(results: Results) -> list[Json]:
    """Returns a row for each trial with measured costs: its keys, the costs of the trial and of its
    pretraining, and the gain of its cell over the same model from scratch."""
    gained = {}
    for gain in reversed(gains(results.contrasts, results.groups, results.costs)):
        cost = gain.cost_per_unit
        columns = {
            "gained": gain.gained,
            "flops_per_gain": cost.flops,
            "wall_time_s_per_gain": cost.wall_time_s,
            "energy_j_estimate_per_gain": cost.joules,
        }
        gained[gain.contrast.a.key] = {key: three_digits(v) for key, v in columns.items()}
    rows = []
    for trial in results.trials:
        if cost := results.finetuning_costs.get(trial.key):
            own = asdict(cost) | _energy_columns(asdict(cost))
            before = results.pretraining_costs[trial.checkpoint]
            before = {f"pretrain_{k}": v for k, v in (before | _energy_columns(before)).items()}
            rows.append(
                {"study": results.params.study}
                | asdict(trial)
                | {key: "" if value is None else value for key, value in (own | before).items()}
                | gained.get(trial.key.cell, {})
            )
    return rows


def _energy_columns(cost: Settings) -> Json:
    energy = estimated_energy(cost)
    both = (energy.joules, energy.co2e_g) if energy else (None, None)
    return dict(zip(ENERGY, map(three_digits, both), strict=True))


def corpus_rows(results: Results) -> Iterator[Json]:
    """Yields a row for each pretrained run, task, method and label budget: the size of the corpus,
    its likeness to the task's texts, and the gain over from scratch."""
    scores, sets = results.scores, results.training_sets
    trained = [group for group in results.groups if group.corpus_tokens]
    places = product(trained, scores.tasks, scores.methods, scores.label_budgets)
    for group, task, method, budget in places:
        about = sets.about(group)
        gain = gain_of(scores.cell(group.name, task, method, budget), results.contrasts_of)
        yield {
            "run": group.name,
            "corpus": group.corpus,
            "tokenizer": group.entry.tokenizer,
            "task": task,
            "method": method,
            "label_budget": budget,
            **{f"corpus_{key}": about[key] for key in ("documents", "words", "types", "bytes")},
            "corpus_tokens": group.corpus_tokens,
            "epochs": six_decimals(group.epochs),
            **{
                key: six_decimals(value)
                for key, value in sets.measured(group, task).items()
                if key in COLUMNS["corpora"]
            },
            "gain": six_decimals(gain.effect.value if gain else None),
            "low": six_decimals(gain.effect.low if gain else None),
            "high": six_decimals(gain.effect.high if gain else None),
        }


def estimate_rows(results: Results) -> Iterator[Json]:
    """Yields a row for each task, checkpoint and estimate. ``screened_out`` is 1 if the run is not
    fine-tuned on the task because of ``finetune.screen``."""
    for task, records in results.estimates.records.items():
        out = {screened.run for screened in results.screened_out[task]}
        for record in records:
            about = {"task": task, "screened_out": int(record.run in out)}
            yield _rounded(asdict(record) | about, "value")


def agreement_rows(results: Results) -> Iterator[Json]:
    """Yields a row for each task, method, label budget, estimate or heuristic, and set of runs.
    If the set was chosen for comparable pretraining losses, ``runs`` names its runs."""
    for agreement in agreements(results, LAYERS, results.scores.label_budgets):
        row = {key: getattr(agreement, key) for key in COLUMNS["agreement"]}
        row |= {"chosen": "; ".join(map(str, agreement.chosen)), "best": str(agreement.best)}
        if agreement.runs == COMPARABLE:
            row["runs"] = "; ".join(dict.fromkeys(key.run for key in agreement.checkpoints))
        yield {k: six_decimals(v) if isinstance(v, float | None) else v for k, v in row.items()}


def carry_over_row(carried: CarryOver) -> Json:
    low, high = carried.ends or (None, None)
    return {key: getattr(carried, key, None) for key in COLUMNS["carry_over"]} | {
        "runs": "; ".join(carried.runs),
        "share": six_decimals(carried.share),
        "low": six_decimals(low),
        "high": six_decimals(high),
        "num_units": len(carried.shares),
    }


def labels_needed_row(needed: LabelsNeeded) -> Json:
    """Returns a run's row of labels_needed.csv, with whole numbers of labels. Gains are unscaled:
    0.034 where the report says 3.4 points."""
    gain = ("gain_per_doubling", "gain_low", "gain_high")
    row = {
        **{key: getattr(needed, key) for key in ("task", "run", "method", "metric")},
        "fewest_labels": needed.num_labels[0],
        "most_labels": needed.num_labels[-1],
        "doubled_from": needed.num_labels[-2],
        "doubled_to": needed.num_labels[-1],
        **dict(zip(gain, map(six_decimals, needed.gain_per_doubling), strict=True)),
    }
    if passing := needed.passing:
        row |= {"baselines": "; ".join(passing.baselines), "basis": passing.basis}
        for end, reach in (("labels", "reach"), ("low", "low_reach"), ("high", "high_reach")):
            if crossing := getattr(passing, end):
                number = crossing.num_labels
                row |= {reach: crossing.reach.value, end: "" if number is None else round(number)}
    return row


def score_rows(results: Results) -> Iterator[Json]:
    """Yields a row for each cell, for ``dvc plots`` and the model cards of exports. Intervals are
    cut off at the ends of the metric's scale."""
    for cell in results.scores.cells:
        low, high = ends(cell.mean, cell.metric) or (None, None)
        yield {
            **cell.key._asdict(),
            "num_labels": results.num_labels[cell.task][cell.label_budget],
            "metric": cell.metric,
            "mean": six_decimals(cell.mean.value),
            "low": six_decimals(low),
            "high": six_decimals(high),
        }


def confusion_rows(results: Results) -> Iterator[Json]:
    """Yields the confusion of each task's best run at the largest label budget, if the task has
    classes."""
    for run in results.best_of_tasks:
        if confused := confusion(run, results.confusion[run.task]):
            for line in confused.lines:
                for prediction, share in zip(confused.columns, line.shares, strict=True):
                    about = {"answer": line.name, "prediction": prediction}
                    yield run.key._asdict() | about | {"share": six_decimals(share)}


def reliability_rows(results: Results) -> Iterator[Json]:
    """Yields the bins of the reliability diagram of each task's best run at the largest label
    budget, if its predictions have probabilities."""
    for run in results.best_of_tasks:
        for row in results.reliability[run.task]:
            if (row.run, row.method, row.label_budget) == (run.group, run.method, run.label_budget):
                yield _rounded(asdict(row) | {"task": run.task}, "mean_probability", "accuracy")


def coverage_rows(results: Results) -> Iterator[Json]:
    """Yields, for each task's best run at the largest label budget, how many rows each of its
    trials answers at each stated accuracy."""
    for run in results.best_of_tasks:
        for row in coverages_of(run, results.coverage[run.task]):
            rounded = ("temperature", "calibration_error", "calibrated_error")
            yield _rounded(asdict(row), *rounded)


def rank_row(ranked: Ranked) -> Json:
    return _rounded(asdict(ranked), "mean")


def contrast_row(contrast: Contrast) -> Json:
    amounts = {
        f"{key}_{side}": cell.amounts[key]
        for key in AMOUNTS
        for side, cell in (("a", contrast.a), ("b", contrast.b))
    }
    return {
        "task": contrast.task,
        **_sides(contrast),
        "mean_a": six_decimals(contrast.a.mean.value),
        "mean_b": six_decimals(contrast.b.mean.value),
        **_effect(contrast),
        "test": contrast.effect.test,
        "basis": contrast.effect.basis,
        "seeds": seeds_of_contrast(contrast),
        "resolved": "yes" if contrast.significant_before_correction else "no",
        "seeds_needed": contrast.seeds_needed,
        **amounts,
        "confounds": "; ".join(map(confound, contrast.confounds)),
        **_variance(contrast.effect),
    }


def question_row(question: Question) -> Json:
    largest, smallest = question.by_size[0], question.by_size[-1]
    if question.effect.value < 0:
        largest, smallest = smallest, largest
    return {
        **_sides(question.first),
        "num_tasks": question.num_tasks,
        "unit": unit_of(question.metric),
        **_effect(question),
        "largest_task": largest.task,
        "largest_effect": six_decimals(largest.effect.value),
        "smallest_task": smallest.task,
        "smallest_effect": six_decimals(smallest.effect.value),
    }


def _sides(contrast: Contrast) -> Json:
    keys = ("axis", "level_a", "level_b", "method", "label_budget")
    about = {key: getattr(contrast, key) for key in keys}
    return about | {"run_a": contrast.a.group, "run_b": contrast.b.group}


def _effect(tested: Contrast | Question) -> Json:
    """Returns the effect with its interval, p-values, verdict and degrees of freedom: all of them,
    and those borrowed from other cells."""
    effect = tested.effect
    between = effect.variance.between if effect.variance else None
    return {
        "effect": six_decimals(effect.value),
        "low": six_decimals(effect.low),
        "high": six_decimals(effect.high),
        "p_value": three_digits(effect.p_value),
        "p_holm": three_digits(tested.p_holm),
        "df": three_digits(between.df if between else None),
        "df_other_cells": three_digits(between.prior_df if between else None),
        "verdict": verdict(tested),
    }


def _variance(effect: Interval) -> Json:
    """Returns each source's share of the variance, and the fraction by which the interval would
    narrow with twice as many of its seeds or rows."""
    if effect.variance is None:
        return {}
    return {
        f"share_{end}": three_digits(effect.variance.share(source))
        for source, end in SOURCES.items()
    } | {
        f"narrower_{end}": three_digits(effect.variance.narrower(source, effect.confidence))
        for source, end in SOURCES.items()
    }


def undecided_rows(contrasts: Iterable[Contrast]) -> list[Json]:
    """Returns the rows of tested contrasts that are not significant, even before correction."""
    return [
        contrast_row(contrast)
        for contrast in contrasts
        if contrast.verdict is Verdict.NOT_SIGNIFICANT
    ]
