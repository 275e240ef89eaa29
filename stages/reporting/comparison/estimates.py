"""Transferability estimates beside the truth: how well they rank the runs as fine-tuning does."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, product

from stages.core.artifacts import Json
from stages.evaluation.estimates import ESTIMATES, LAYERS, EstimateRecord
from stages.evaluation.metrics import merit, scale_of
from stages.evaluation.rank_agreement import FEWEST, agreement
from stages.evaluation.records import ScoredTrial
from stages.reporting.comparison import screening
from stages.reporting.comparison.appendix import Appendix
from stages.reporting.comparison.results import Results
from stages.reporting.number_format import DASH, formatted, percent, seconds, six_decimals

NAMES = {
    "h_score": "H-score",
    "h_score_above_chance": "H-score above chance",
    "logme": "LogME",
    "knn": "nearest neighbours",
}
SHOWN = "last"  # the layer that heads read, so chosen before any result
COLUMNS = [
    *("task", "run", "estimate", "layers", "value", "layer", "num_rows", "num_states", "flops"),
    *("reason", "screened_out"),
]
AGREEMENT = [
    *("task", "method", "label_budget", "estimate", "layers", "runs", "num_runs", "num_groups"),
    *("tau", "low", "high", "chosen", "best", "lost", "lost_at_random", "saved_flops"),
]
EXPLAINED = (
    "H-score, LogME and the accuracy of the 3 nearest neighbours are computed from the frozen "
    "states of the last layer, for the same labelled rows of each run, before anything is "
    "fine-tuned; `agreement.csv` has the mean of the layers and the best layer as well. Above "
    "chance: less the mean over all orders of the labels, which differs between runs. Tau: the "
    "weighted Kendall correlation of the estimate with the test score over runs (1: the same "
    "order, 0: chance; the better runs weigh more), with its {confidence} interval from a "
    "bootstrap over groups of runs, which is wide where there are few. It takes "
    f"{FEWEST} runs for a tau, and {FEWEST} groups for an interval. The report's "
    "recommendations use test scores, not estimates."
)
CHOICES = (
    "What a study would have lost and saved that fine-tunes only the run with the highest "
    "estimate: the score of the best run less that of the chosen one, in the unit of the metric, "
    "and the share of the FLOPs of fine-tuning all runs, less those of the estimate's own states. "
    "At random: the mean loss of a run drawn blindly. The best run is the best of several with "
    "noise, so that a right choice may lose a little, too."
)


@dataclass(frozen=True)
class Agreement:
    """Of an estimate with the scores of a method over runs."""

    task: str
    method: str
    label_budget: str
    metric: str
    estimate: str
    layers: str
    runs: str  # "all" or "pretrained"
    num_runs: int
    num_groups: int
    tau: float | None
    low: float | None
    high: float | None
    chosen: tuple[str, ...]  # the run with the highest estimate; several if they tie
    best: str
    lost: float  # the best score less that of the choice, larger is worse
    lost_at_random: float
    saved_flops: float | None  # as a share; None if nothing was trained

    def row(self) -> Json:
        found = {name: getattr(self, name) for name in AGREEMENT} | {
            "chosen": " ".join(self.chosen)
        }
        return {k: six_decimals(v) if isinstance(v, float | None) else v for k, v in found.items()}


def rows(results: Results) -> Iterator[Json]:
    """reports/estimates.csv: a row for each task, run and estimate. ``screened_out`` is 1 where the
    run is not fine-tuned on the task because of ``finetune.screen``."""
    for task, records in results.estimates.records.items():
        out = {run for each in results.screened_out[task] for run in each.runs}
        for record in records:
            found = asdict(record) | {"value": six_decimals(record.value)}
            yield {"task": task, **found, "screened_out": int(record.run in out)}


def agreements(
    results: Results, layers: Sequence[str], label_budgets: Sequence[str]
) -> list[Agreement]:
    """For each task, each method that trains and each label budget: over all runs, and over those
    that are pretrained."""
    group_of = {run: group for group in results.groups for run in group.runs}
    pretrained = [run for run, group in group_of.items() if group.pretrained]
    found = []
    for task, method, budget in product(results.params.tasks, results.methods, label_budgets):
        trials = _trials(results, task, method, budget)
        for runs, names in (("all", [*group_of]), ("pretrained", pretrained)):
            some = {run: trials[run] for run in names if run in trials}
            if runs == "pretrained" and len(some) == len(trials):
                continue
            for estimate, states in product(ESTIMATES, layers):
                records = _values(results.estimates.records[task], estimate, states)
                known = {run: each for run, each in some.items() if run in records}
                if known:
                    groups = [group_of[run].name for run in known]
                    found.append(_agreement(results, runs, known, records, groups))
    return found


def _trials(results: Results, task: str, method: str, budget: str) -> dict[str, list[ScoredTrial]]:
    """Of each run, if the method trains anything."""
    found: dict[str, list[ScoredTrial]] = {}
    for trial in results.trials:
        place = trial.task, trial.method, trial.label_budget
        if place == (task, method, budget) and trial.num_trained_params:
            found.setdefault(trial.run, []).append(trial)
    return {run: trials for run, trials in found.items() if run in results.params.pretrain}


def _values(
    records: Sequence[EstimateRecord], estimate: str, layers: str
) -> dict[str, EstimateRecord]:
    """Of each run where the estimate is defined."""
    return {
        record.run: record
        for record in records
        if (record.estimate, record.layers) == (estimate, layers) and record.value is not None
    }


def _agreement(
    results: Results,
    runs: str,
    trials: dict[str, list[ScoredTrial]],
    records: dict[str, EstimateRecord],
    groups: Sequence[str],
) -> Agreement:
    trial = next(iter(trials.values()))[0]
    record = next(iter(records.values()))
    values = [value for run in trials if (value := records[run].value) is not None]
    merits = [sum(merit(t.metric, t.value) for t in some) / len(some) for some in trials.values()]
    tau, low, high = agreement(
        values,
        merits,
        groups,
        confidence=results.confidence,
        seed=results.params.finetune.seeds[0],
    )
    names, highest, best = [*trials], max(values), max(merits)
    chosen = [i for i, value in enumerate(values) if value == highest]
    flops = [sum(t.finetune_flops for t in some) for some in trials.values()]
    spent = sum(flops[i] for i in chosen) / len(chosen) + sum(records[run].flops for run in names)
    return Agreement(
        task=trial.task,
        method=trial.method,
        label_budget=trial.label_budget,
        metric=trial.metric,
        estimate=record.estimate,
        layers=record.layers,
        runs=runs,
        num_runs=len(names),
        num_groups=len({*groups}),
        tau=tau,
        low=low,
        high=high,
        chosen=tuple(names[i] for i in chosen),
        best=names[merits.index(best)],
        lost=best - sum(merits[i] for i in chosen) / len(chosen),
        lost_at_random=best - sum(merits) / len(merits),
        saved_flops=1 - spent / sum(flops) if any(flops) else None,
    )


def agreement_rows(results: Results) -> Iterator[Json]:
    """reports/agreement.csv: every ``Agreement`` of the study."""
    return (found.row() for found in agreements(results, LAYERS, results.label_budgets))


def appendix(results: Results) -> Appendix | None:
    """With the largest label budget; None if no estimate is defined for any task."""
    largest = results.label_budgets[-1]
    every = agreements(results, [SHOWN], [largest])
    if not every:
        return None
    places = [
        (place, {each.estimate: each for each in some})
        for place, some in groupby(every, key=lambda a: (a.task, a.method, a.runs))
    ]
    explained = EXPLAINED.format(confidence=percent(results.confidence))
    tables = {
        "Rank correlation of estimates from frozen states with test scores, over runs": [
            {
                "task": task,
                "method": method,
                "labels": largest,
                "runs": _runs(of),
                **{NAMES[key]: _tau(of.get(key)) for key in ESTIMATES},
            }
            for (task, method, _), of in places
        ],
        "What the choice of an estimate would have lost and saved": [
            _choice(largest, of)
            for (_, _, runs), of in places
            if runs == "all" and _any(of).num_runs > 1
        ],
        "Runs that are screened out, and the mean of their estimates": screening.rows(results),
    }
    return Appendix("Estimates", tables, [explained, *_left_out(results), CHOICES])


def _any(of: dict[str, Agreement]) -> Agreement:
    return next(iter(of.values()))


def _runs(of: dict[str, Agreement]) -> str:
    first = _any(of)
    groups = "" if first.num_groups == first.num_runs else f" in {first.num_groups} groups"
    return f"{first.runs}, {first.num_runs}{groups}"


def _tau(found: Agreement | None) -> str:
    if found is None or found.tau is None:
        return DASH
    tau, low, high = (formatted(value, "+.2f") for value in (found.tau, found.low, found.high))
    return tau if found.low is None else f"{tau} ({low} to {high})"


def _choice(label_budget: str, of: dict[str, Agreement]) -> dict[str, str]:
    first = _any(of)
    shown = scale_of(first.metric).shown
    shares = [each.saved_flops for each in of.values() if each.saved_flops is not None]
    saved = (
        [*dict.fromkeys(formatted(share, ".0%") for share in (min(shares), max(shares)))]
        if shares
        else []
    )
    return {
        "task": first.task,
        "method": first.method,
        "labels": label_budget,
        "best run": first.best,
        **{
            NAMES[key]: f"{shown(of[key].lost)} ({', '.join(of[key].chosen)})"
            if key in of
            else DASH
            for key in ESTIMATES
        },
        "at random": shown(first.lost_at_random),
        "FLOPs saved": " to ".join(saved) or DASH,
    }


def _left_out(results: Results) -> Iterator[str]:
    """Tasks without an estimate, each with its reason."""
    for task, records in results.estimates.records.items():
        reasons: dict[str, list[str]] = {}
        for record in records:
            if record.reason and record.layers == SHOWN:
                names = reasons.setdefault(record.reason, [])
                names += [NAMES[record.estimate]] if NAMES[record.estimate] not in names else []
        for reason, names in reasons.items():
            yield f"Not on `{task}`: {', '.join(names)} ({reason})."


def cost_note(results: Results) -> str:
    """How long the estimates took, beside fine-tuning: of the machine, so for the page alone."""
    took = [cost.wall_time_s for cost in results.estimates.costs]
    tuned = sum(cost.wall_time_s for cost in results.finetuning_costs.values())
    return (
        f"All estimates of a run and a task took {seconds(sum(took) / max(len(took), 1))} on "
        f"average, and {seconds(sum(took))} together; all trials {seconds(tuned)}."
    )
