"""Finds a kept trial of a run and a task by its method, label budget and seeds."""

from contextlib import suppress

from stages.core import paths
from stages.core.components import unknown
from stages.core.keys import TrialKey
from stages.core.study_file import load
from stages.evaluation.records import TrialRecord, read
from stages.trials.kept import KeptTrial, path_of, setup_of
from stages.trials.kept import read as read_kept
from stages.trials.setup import TrialSetup


def find_trial(
    run: str,
    task: str,
    method: str | None,
    label_budget: str | None,
    finetune_seed: int | None,
    pretrain_seed: int | None = None,
) -> TrialKey:
    """Returns the kept trial of a run or baseline and a task with the given method, label budget
    and seeds. None matches any value. If several pretraining seeds match, the first one is used.
    A baseline's default fine-tuning seed is its first one.

    Raises ValueError if no trial matches, or if several with the first pretraining seed do.
    """
    files = paths.BASELINES / task / "trials.csv", paths.FINETUNED / task / run / "trials.csv"
    rows = [row for file in files if file.is_file() for row in read(file, TrialRecord)]
    rows = [row for row in rows if row.run == run]
    if not rows:
        raise ValueError(_why_missing(run, task))
    if rows[0].num_tries == 0:
        raise ValueError(f"{run} is an external system: the study has its predictions, not it")
    is_baseline = not files[1].is_file()
    kept = [row.key for row in rows if is_baseline or path_of(row.key).is_file()]
    if not kept:
        raise ValueError(f"{files[1]}: no trial is kept; set finetune.keep_weights and rerun")
    if is_baseline and finetune_seed is None:
        finetune_seed = kept[0].finetune_seed
    matching = [
        key
        for key in kept
        if method in (None, key.method)
        and label_budget in (None, key.label_budget)
        and finetune_seed in (None, key.finetune_seed)
        and pretrain_seed in (None, key.pretrain_seed)
    ]
    of_first = [key for key in matching if key.pretrain_seed == matching[0].pretrain_seed]
    if len(of_first) == 1:
        return of_first[0]
    listed = "; ".join(
        f"--method {key.method} --label-budget {key.label_budget} "
        f"--finetune-seed {key.finetune_seed} --pretrain-seed {key.pretrain_seed}"
        for key in of_first or kept
    )
    if of_first:
        raise ValueError(f"several kept trials match: {listed}")
    why = "; finetune.keep_weights sets which seeds are kept: none, first_seed or all"
    raise ValueError(f"no kept trial matches; kept are: {listed}{'' if is_baseline else why}")


def _why_missing(run: str, task: str) -> str:
    """Returns why there is no trial of a run or baseline on a task."""
    stage = f"finetune@{task}"
    with suppress(ValueError):  # params.yaml may be one that cannot be read
        params = load()
        if task not in params.tasks:
            return f"tasks: {unknown(task, params.tasks)}"
        if run not in {**params.runs, **params.baselines}:
            return f"models, baselines: {unknown(run, [*params.runs, *params.baselines])}"
        stage = f"fit_baseline@{task}" if run in params.baselines else stage
    return f"no trial of {run} on {task}: `dvc repro {stage}` has not run, or {run} does not fit it"


def opened(key: TrialKey) -> tuple[KeptTrial, TrialSetup]:
    """Returns the record of a kept trial, and the set-up of its checkpoint and task.

    Raises ValueError if the checkpoint or the task has changed since.
    """
    path = path_of(key)
    kept = read_kept(path)
    return kept, setup_of(kept, path)
