"""The agreement of fine-tuning with estimates from frozen states, and with heuristics, on the order
of checkpoints.

A heuristic gives each checkpoint a number without using its scores on the task: size, FLOPs or loss
of pretraining, or rank on other tasks. Larger is expected to be better. Estimates are compared with
heuristics.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.stats import rankdata

from stages.core.keys import RunKey
from stages.evaluation.estimates import ESTIMATES, EstimateRecord
from stages.evaluation.metrics import merit
from stages.evaluation.rank_agreement import agreement
from stages.evaluation.records import ScoredTrial
from stages.findings.groups import Group
from stages.findings.pretraining_progress import Progress, comparable, validation_losses
from stages.findings.results import Results
from stages.findings.scores import Scores

NUM_PARAMS = "num_params"
PRETRAIN_FLOPS = "pretrain_flops"
MEAN_RANK = "mean_rank"
VALIDATION_LOSS = "validation_loss"
HEURISTICS = (NUM_PARAMS, PRETRAIN_FLOPS, VALIDATION_LOSS, MEAN_RANK)
ALL, PRETRAINED, COMPARABLE = "all", "pretrained", "comparable losses"
Trials = Mapping[RunKey, Sequence[ScoredTrial]]


@dataclass(frozen=True)
class Agreement:
    """The agreement of an estimate or a heuristic with the scores of a method, over checkpoints."""

    task: str
    method: str
    label_budget: str
    metric: str
    estimate: str  # one of ESTIMATES or of HEURISTICS
    layers: str  # "" for a heuristic
    runs: str  # ALL, PRETRAINED or, for the validation loss, COMPARABLE
    checkpoints: tuple[RunKey, ...]
    tau: float | None
    low: float | None
    high: float | None
    chosen: tuple[RunKey, ...]  # the checkpoint with the highest estimate; several if they tie
    best: RunKey
    lost: float  # the best score minus the score of the chosen checkpoint
    lost_at_random: float  # the best score minus the mean score
    saved_flops: float | None  # share of fine-tuning all checkpoints; None if unknown or 0 FLOPs

    @property
    def num_checkpoints(self) -> int:
        return len(self.checkpoints)

    @property
    def num_runs(self) -> int:
        return len({key.run for key in self.checkpoints})


@dataclass(frozen=True)
class _Ranker:
    """An estimate or a heuristic with its value for each checkpoint; higher is better."""

    name: str
    values: Mapping[RunKey, float]
    layers: str = ""
    flops: Mapping[RunKey, int] | None = None  # for computing each value; None: free
    has_known_cost: bool = True


def agreements(
    results: Results, layers: Sequence[str], label_budgets: Sequence[str]
) -> list[Agreement]:
    """Returns the agreements for each task, each method that trains and each label budget, over all
    runs and over the pretrained runs. The validation loss of pretraining is compared within each
    set of runs whose losses can be compared."""
    scores = results.scores
    pretrained = {
        checkpoint
        for group in scores.groups
        for checkpoint in group.checkpoints
        if group.pretrained
    }
    losses = [*negative_losses(scores.groups, results.progress)]
    places = [*product(scores.tasks, scores.methods, label_budgets)]
    trials = {place: _trials(scores, *place) for place in places}
    seed, rows = results.params.finetune.seeds[0], []
    for task, method, budget in places:
        every, records = trials[task, method, budget], results.estimates.records[task]
        others = [
            {key: _merit(of_key) for key, of_key in of_task.items()}
            for other in scores.tasks
            if other != task and (of_task := trials[other, method, budget])
        ]
        candidates = []
        for runs, some in (
            (ALL, every),
            (PRETRAINED, {key: every[key] for key in every if key in pretrained}),
        ):
            if runs == ALL or len(some) < len(every):
                rankers = [*_estimates(records, layers), *_heuristics(some, others)]
                candidates += [(runs, some, ranker) for ranker in rankers]
        candidates += [(COMPARABLE, every, _Ranker(VALIDATION_LOSS, values)) for values in losses]
        for runs, some, ranker in candidates:
            known = {key: some[key] for key in some if key in ranker.values}
            if known:
                rows.append(
                    _agreement(runs, known, ranker, confidence=results.confidence, seed=seed)
                )
    return rows


def _trials(
    scores: Scores, task: str, method: str, label_budget: str
) -> dict[RunKey, list[ScoredTrial]]:
    """Returns the trials of each checkpoint; none if the method trains nothing."""
    trials: dict[RunKey, list[ScoredTrial]] = {}
    for group in scores.groups:
        cell = scores.cell(group.name, task, method, label_budget)
        for trial in cell.trials if cell else ():
            if trial.num_trained_params:
                trials.setdefault(trial.checkpoint, []).append(trial)
    return trials


def _merit(trials: Sequence[ScoredTrial]) -> float:
    return sum(merit(trial.metric, trial.value) for trial in trials) / len(trials)


def _estimates(records: Sequence[EstimateRecord], layers: Sequence[str]) -> Iterator[_Ranker]:
    """Yields each estimate from each of ``layers``, with the checkpoints that have a value."""
    for name, states in product(ESTIMATES, layers):
        known = [r for r in records if (r.estimate, r.layers) == (name, states)]
        values = {r.checkpoint: r.value for r in known if r.value is not None}
        yield _Ranker(name, values, states, {r.checkpoint: r.flops for r in known})


def _heuristics(trials: Trials, others: Sequence[Mapping[RunKey, float]]) -> Iterator[_Ranker]:
    """Yields the heuristics that can compare any runs. ``others`` has the merits on each of the
    other tasks. The cost of ``MEAN_RANK`` counts as unknown: fine-tuning on other tasks is not
    free, although it was not done for this choice."""
    yield _Ranker(NUM_PARAMS, {key: of_key[0].num_params for key, of_key in trials.items()})
    yield _Ranker(PRETRAIN_FLOPS, pretraining_flops(trials))
    if others:
        within = [{key: of_task[key] for key in trials if key in of_task} for of_task in others]
        yield _Ranker(MEAN_RANK, mean_ranks(within), has_known_cost=False)


def pretraining_flops(trials: Trials) -> dict[RunKey, float]:
    """Returns the FLOPs of pretraining each checkpoint with its parents and teachers, 0 for one
    from scratch. Public checkpoints, whose FLOPs are unknown, are left out."""
    return {
        key: flops
        for key, of_key in trials.items()
        if (flops := of_key[0].lineage_flops) is not None
    }


def mean_ranks(merits: Sequence[Mapping[RunKey, float]]) -> dict[RunKey, float]:
    """Returns the mean rank over tasks of each checkpoint that all tasks have. Rank 1 is the worst;
    ties share their mean rank. Each of ``merits`` has one task's scores; larger is better."""
    shared = [key for key in merits[0] if all(key in of_task for of_task in merits)]
    ranks = [rankdata([of_task[key] for key in shared]) for of_task in merits]
    return dict(zip(shared, np.mean(ranks, axis=0).tolist(), strict=True))


def negative_losses(
    all_groups: Sequence[Group], progress: Mapping[RunKey, Progress]
) -> Iterator[dict[RunKey, float]]:
    """Yields, for every set of at least two runs whose losses can be compared, the negated last
    validation loss of each checkpoint's pretraining, in nats."""
    for members in comparable(all_groups, progress):
        if len(members) > 1:
            yield {
                checkpoint: -validation_losses(progress[checkpoint])[-1]
                for group in members
                for checkpoint in group.checkpoints
            }


def _agreement(
    runs: str, trials: Trials, ranker: _Ranker, *, confidence: float, seed: int
) -> Agreement:
    trial = next(iter(trials.values()))[0]
    values, merits = [ranker.values[key] for key in trials], [*map(_merit, trials.values())]
    names = [key.run for key in trials]
    tau, low, high = agreement(values, merits, names, confidence=confidence, seed=seed)
    checkpoints, highest, best = [*trials], max(values), max(merits)
    chosen = [i for i, value in enumerate(values) if value == highest]
    flops = [sum(t.finetune_flops for t in some) for some in trials.values()]
    spent = sum(flops[i] for i in chosen) / len(chosen)
    spent += sum(ranker.flops[key] for key in checkpoints) if ranker.flops else 0
    return Agreement(
        task=trial.task,
        method=trial.method,
        label_budget=trial.label_budget,
        metric=trial.metric,
        estimate=ranker.name,
        layers=ranker.layers,
        runs=runs,
        checkpoints=tuple(checkpoints),
        tau=tau,
        low=low,
        high=high,
        chosen=tuple(checkpoints[i] for i in chosen),
        best=checkpoints[merits.index(best)],
        lost=best - sum(merits[i] for i in chosen) / len(chosen),
        lost_at_random=best - sum(merits) / len(merits),
        saved_flops=1 - spent / sum(flops) if any(flops) and ranker.has_known_cost else None,
    )
