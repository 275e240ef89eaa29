"""The trials that params.yaml lists, and whether the study has exactly those."""

import math
from collections.abc import Collection, Iterator
from itertools import product

from stages.core import paths
from stages.core.params import Params
from stages.evaluation.estimates import EstimateRecord
from stages.evaluation.records import CLASSICAL, ScoredTrial, SkippedMethod, read
from stages.evaluation.screening import screened_out
from stages.kinds._kind import distinct_draws

Key = tuple[str, str, str, int, int]  # run or baseline, method, label budget, both seeds


def complete(params: Params, task: str, num_train: int) -> list[ScoredTrial]:
    """The trials of a task in the order of params.yaml; ValueError unless they are exactly those
    listed. A method that is incompatible with a run has no trials with it, nor has a run that is
    screened out."""
    where = paths.EVALUATED / task / "trials.csv"
    found = {
        (t.run, t.method, t.label_budget, t.pretrain_seed, t.finetune_seed): t
        for t in read(where, ScoredTrial)
    }
    fitted = {run for run, *_ in found}
    listed = [
        *_of_runs(params, task),
        *_of_baselines(params, task, fitted, num_train),
    ]
    if missing := [key for key in listed if key not in found]:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ValueError(f"{where}: no trial of {words(task, *missing[0])}{more}; run `dvc repro`")
    if surplus := sorted(found.keys() - set(listed)):
        raise ValueError(
            f"{where}: params.yaml does not list {words(task, *surplus[0])}; run `dvc repro`"
        )
    if lost := [key for key in listed if not math.isfinite(found[key].value)]:
        trial = found[lost[0]]
        raise ValueError(
            f"{where}: the {trial.metric} of {words(task, *lost[0])} is {trial.value} and cannot "
            f"be compared: the model did not learn; lower the learning rate (now {trial.lr:g})"
        )
    return [found[key] for key in listed]


def _of_runs(params: Params, task: str) -> Iterator[Key]:
    skipped = read(paths.EVALUATED / task / "skipped.csv", SkippedMethod)
    incompatible = {(each.run, each.method) for each in skipped}
    tuning = params.finetune
    estimates = read(paths.EVALUATED / task / "estimates.csv", EstimateRecord)
    screened = screened_out(tuning.screen, params.pretrain, estimates)
    untrained = {run for each in screened for run in each.runs}
    for run, method in product(params.pretrain, tuning.methods):
        if run not in untrained and (run, method) not in incompatible:
            for budget, seed in product(tuning.label_budgets, tuning.seeds):
                yield run, method, str(budget), params.pretrain[run].seed, seed


def _of_baselines(
    params: Params, task: str, fitted: Collection[str], num_train: int
) -> Iterator[Key]:
    """Of those that were ``fitted``: others do not support the task."""
    names = [name for name in params.baselines if name in fitted]
    for name, budget in product(names, params.finetune.label_budgets):
        for pair in distinct_draws(
            budget,
            num_train,
            pretrain_seeds=params.pretrain_seeds,
            finetune_seeds=params.finetune.seeds,
            task=task,
        ):
            yield name, CLASSICAL, str(budget), *pair


def words(task: str, run: str, method: str, budget: str, *seeds: int) -> str:
    return f"{run} on {task} ({method}, {budget} labels, seed {seeds[-1]})"
