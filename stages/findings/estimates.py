"""How well estimates from frozen states rank the checkpoints, compared with fine-tuning."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from stages.core.keys import RunKey
from stages.evaluation.estimates import ESTIMATES, EstimateRecord
from stages.evaluation.metrics import merit
from stages.evaluation.rank_agreement import agreement
from stages.evaluation.records import ScoredTrial
from stages.findings.results import Results
from stages.findings.scores import Scores


@dataclass(frozen=True)
class Agreement:
    """The agreement of an estimate with the scores of a method, over checkpoints."""

    task: str
    method: str
    label_budget: str
    metric: str
    estimate: str
    layers: str
    runs: str  # "all" or "pretrained"
    num_checkpoints: int
    num_runs: int
    tau: float | None
    low: float | None
    high: float | None
    chosen: tuple[RunKey, ...]  # the one with the highest estimate; several if they tie
    best: RunKey
    lost: float  # the best score less that of the choice, larger is worse
    lost_at_random: float
    saved_flops: float | None  # as a share; None if nothing was trained


def agreements(
    results: Results, layers: Sequence[str], label_budgets: Sequence[str]
) -> list[Agreement]:
    """The agreements for each task, each method that trains and each label budget, over all runs
    and over those that are pretrained."""
    scores = results.scores
    rows = []
    for task, method, budget in product(scores.tasks, scores.methods, label_budgets):
        trials = _trials(scores, task, method, budget)
        pretrained = {
            checkpoint: trials[checkpoint]
            for group in scores.groups
            for checkpoint in group.checkpoints
            if group.pretrained and checkpoint in trials
        }
        for runs, some in (("all", trials), ("pretrained", pretrained)):
            if runs == "pretrained" and len(some) == len(trials):
                continue
            for estimate, states in product(ESTIMATES, layers):
                records = _values(results.estimates.records[task], estimate, states)
                known = {key: some[key] for key in some if key in records}
                if known:
                    seed = results.params.finetune.seeds[0]
                    rows.append(
                        _agreement(runs, known, records, confidence=results.confidence, seed=seed)
                    )
    return rows


def _trials(
    scores: Scores, task: str, method: str, label_budget: str
) -> dict[RunKey, list[ScoredTrial]]:
    """The trials of each checkpoint; empty if the method trains nothing."""
    trials: dict[RunKey, list[ScoredTrial]] = {}
    for group in scores.groups:
        cell = scores.cell(group.name, task, method, label_budget)
        for trial in cell.trials if cell else ():
            if trial.num_trained_params:
                trials.setdefault(trial.checkpoint, []).append(trial)
    return trials


def _values(
    records: Sequence[EstimateRecord], estimate: str, layers: str
) -> dict[RunKey, EstimateRecord]:
    """The record of each checkpoint for which the estimate is defined."""
    return {
        record.checkpoint: record
        for record in records
        if (record.estimate, record.layers) == (estimate, layers) and record.value is not None
    }


def _agreement(
    runs: str,
    trials: Mapping[RunKey, Sequence[ScoredTrial]],
    records: Mapping[RunKey, EstimateRecord],
    *,
    confidence: float,
    seed: int,
) -> Agreement:
    trial = next(iter(trials.values()))[0]
    record = next(iter(records.values()))
    values = [value for key in trials if (value := records[key].value) is not None]
    merits = [sum(merit(t.metric, t.value) for t in some) / len(some) for some in trials.values()]
    names = [key.run for key in trials]
    tau, low, high = agreement(values, merits, names, confidence=confidence, seed=seed)
    checkpoints, highest, best = [*trials], max(values), max(merits)
    chosen = [i for i, value in enumerate(values) if value == highest]
    flops = [sum(t.finetune_flops for t in some) for some in trials.values()]
    spent = sum(flops[i] for i in chosen) / len(chosen)
    spent += sum(records[key].flops for key in checkpoints)
    return Agreement(
        task=trial.task,
        method=trial.method,
        label_budget=trial.label_budget,
        metric=trial.metric,
        estimate=record.estimate,
        layers=record.layers,
        runs=runs,
        num_checkpoints=len(checkpoints),
        num_runs=len({key.run for key in checkpoints}),
        tau=tau,
        low=low,
        high=high,
        chosen=tuple(checkpoints[i] for i in chosen),
        best=checkpoints[merits.index(best)],
        lost=best - sum(merits[i] for i in chosen) / len(chosen),
        lost_at_random=best - sum(merits) / len(merits),
        saved_flops=1 - spent / sum(flops) if any(flops) else None,
    )
