"""The trials that params.yaml lists, and whether the study has exactly those."""

import math
from collections.abc import Iterator, Mapping
from itertools import product

from stages.core import paths
from stages.core.artifacts import Json
from stages.core.keys import TrialKey
from stages.core.params import Finetune, Params, Run
from stages.evaluation.estimates import EstimateRecord
from stages.evaluation.records import CLASSICAL, ScoredTrial, SkippedMethod, read
from stages.evaluation.screening import screened_out
from stages.findings.cells import is_external
from stages.kinds._kind import distinct_draws, distinct_splits


def complete(params: Params, task: str, about: Json) -> list[ScoredTrial]:
    """Returns the trials of a task in the order of params.yaml.

    A method that is incompatible with a run has no trials with it, and a run that is screened out
    has none at all. ``about`` is the task's task.json. Raises ValueError unless the trials are
    exactly those that params.yaml lists.
    """
    where = paths.EVALUATED / task / "trials.csv"
    trials = {trial.key: trial for trial in read(where, ScoredTrial)}
    is_external_by_name = {key.run: is_external(trial) for key, trial in trials.items()}
    listed = [*_of_runs(params.runs, params.finetune, task)]
    fitted = [name for name in params.baselines if name in is_external_by_name]
    for name, budget in product(fitted, params.finetune.label_budgets):
        draws = distinct_draws(
            budget,
            pretrain_seeds=params.pretrain_seeds,
            finetune_seeds=params.finetune.seeds,
            about=about,
            task=task,
        )
        if is_external_by_name[name]:
            draws = distinct_splits(draws, about)
        for pretrain_seed, finetune_seed in draws:
            key = TrialKey(name, pretrain_seed, task, CLASSICAL, str(budget), finetune_seed)
            listed.append(key)
    if missing := [key for key in listed if key not in trials]:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ValueError(f"{where}: no trial of {words(missing[0])}{more}; run `dvc repro`")
    if surplus := sorted(trials.keys() - set(listed)):
        raise ValueError(f"{where}: params.yaml does not list {words(surplus[0])}; run `dvc repro`")
    if lost := [key for key in listed if not math.isfinite(trials[key].value)]:
        trial = trials[lost[0]]
        raise ValueError(
            f"{where}: the {trial.metric} of {words(lost[0])} is {trial.value} and cannot "
            f"be compared: the model did not learn; lower the learning rate (now {trial.lr:g})"
        )
    return [trials[key] for key in listed]


def _of_runs(runs: Mapping[str, Run], finetune: Finetune, task: str) -> Iterator[TrialKey]:
    skipped = read(paths.EVALUATED / task / "skipped.csv", SkippedMethod)
    incompatible = {(each.run, each.method) for each in skipped}
    estimates = read(paths.EVALUATED / task / "estimates.csv", EstimateRecord)
    untrained = {each.run for each in screened_out(finetune.screen, runs, estimates)}
    for name, run in runs.items():
        for pretrain_seed, method in product(run.seeds, finetune.methods):
            if name not in untrained and (name, method) not in incompatible:
                for budget, seed in product(finetune.label_budgets, finetune.seeds):
                    yield TrialKey(name, pretrain_seed, task, method, str(budget), seed)


def words(trial: TrialKey) -> str:
    """Returns the name of a trial in messages."""
    return (
        f"{trial.checkpoint} on {trial.task} ({trial.method}, {trial.label_budget} labels, "
        f"fine-tuning seed {trial.finetune_seed})"
    )
