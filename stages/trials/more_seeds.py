"""Trials with the seeds that a race adds."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from stages.core import paths
from stages.core.artifacts import read_json
from stages.core.params import Params, Run
from stages.evaluation.raced_seeds import Candidate, Merits, raced_seeds, validation_merits
from stages.trials.groups import Group, run_trials
from stages.trials.outcome import Outcome, TrialKey

Outcomes = dict[str, list[Outcome]]  # of each run


def with_more_seeds(
    params: Params,
    task: str,
    pretrain: Mapping[str, Run],
    outcomes: Outcomes,
    weights: Mapping[str, Path],
) -> Outcomes:
    """``outcomes`` with all seeds of ``finetune.seeds`` and, behind them, those of the seeds that
    the race adds: from the store of trials, or trained.

    Raises ValueError as ``run_trials`` does.
    """
    if params.finetune.race is None:
        return outcomes
    metric = read_json(paths.examples(task) / "task.json")["metric"]
    found = {run: [*some] for run, some in outcomes.items()}

    def add(candidates: Sequence[Candidate], seed: int) -> Merits:
        groups = dict[str, list[Group]]()
        for candidate in candidates:
            key = TrialKey(candidate.method, candidate.label_budget, seed)
            for run in candidate.runs:
                groups.setdefault(run, []).append([key])
        print(f"{task}: {len(candidates)} left in the race get seed {seed}")
        new = run_trials(params, task, groups, weights)
        for run, some in new.items():
            found[run] += some
        return _merits(metric, new)

    raced_seeds(params.finetune, pretrain, _merits(metric, outcomes), add)
    return found


def _merits(metric: str, outcomes: Outcomes) -> Merits:
    every = [outcome for some in outcomes.values() for outcome in some]
    epochs = [epoch for outcome in every for epoch in outcome.epochs]
    return validation_merits(metric, [outcome.trial for outcome in every], epochs)
