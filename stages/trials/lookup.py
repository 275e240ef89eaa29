"""Finds a kept trial of a model and a task by its method, label budget and seeds."""

from stages.core import paths
from stages.core.components import unknown
from stages.core.keys import TrialKey
from stages.core.study_file import load
from stages.evaluation.records import CLASSICAL, TrialRecord, budget_order, read
from stages.trials import kept
from stages.trials.setup import TrialSetup


def find_trial(
    model: str,
    task: str,
    method: str | None,
    label_budget: str | None,
    finetune_seed: int | None,
    pretrain_seed: int | None = None,
) -> TrialKey:
    """Returns the kept trial of a model or baseline and a task with the given method, label budget
    and seeds. None matches any value; of several label budgets the largest is used, and of several
    seeds the first.

    Raises ValueError if no trial matches, or trials with several methods.
    """
    files = paths.BASELINES / task / "trials.csv", paths.FINETUNED / task / model / "trials.csv"
    rows = [row for file in files if file.is_file() for row in read(file, TrialRecord)]
    rows = [row for row in rows if row.model == model]
    if any(row.is_external for row in rows):
        raise ValueError(f"{model} is an external system: the study has its predictions, not it")
    is_kept = [row.method == CLASSICAL or kept.path_of(row.key).is_file() for row in rows]
    keys = [row.key for row, has_file in zip(rows, is_kept, strict=True) if has_file]
    if rows and not keys:
        how = "finetune: {keep_weights: first_seed}"
        raise ValueError(f"the weights of {model} on {task} are not kept; `{how}` keeps them")
    if not keys:
        params = load()
        if task not in params.tasks:
            raise ValueError(f"tasks: {unknown(task, params.tasks)}")
        if model not in (models := [*params.models, *params.baselines]):
            raise ValueError(f"models, baselines: {unknown(model, models)}")
        stage = f"{'fit_baseline' if model in params.baselines else 'finetune'}@{task}"
        raise ValueError(f"no trial of {model} on {task}: `dvc repro {stage}` has not run")
    wanted = {
        "method": method,
        "label_budget": label_budget,
        "finetune_seed": finetune_seed,
        "pretrain_seed": pretrain_seed,
    }
    matching = [k for k in keys if all(v in (None, getattr(k, n)) for n, v in wanted.items())]
    if len({key.method for key in matching}) == 1:
        most = max(budget_order(key.label_budget) for key in matching)
        return next(key for key in matching if budget_order(key.label_budget) == most)
    if matching:
        methods = " or ".join(f"--method {name}" for name in sorted({k.method for k in matching}))
        raise ValueError(f"several methods match: {methods} (of make FLAGS='--method NAME')")
    listed = "; ".join(
        f"--method {key.method} --label-budget {key.label_budget} "
        f"--finetune-seed {key.finetune_seed} --pretrain-seed {key.pretrain_seed}"
        for key in keys
    )
    raise ValueError(f"no kept trial matches; kept are: {listed}")


def opened(key: TrialKey) -> tuple[kept.KeptTrial, TrialSetup]:
    """Returns the record of a kept trial, and the set-up of its checkpoint and task.

    Raises ValueError if the checkpoint or the task has changed since.
    """
    path = kept.path_of(key)
    trial = kept.read(path)
    return trial, kept.setup_of(trial, path)
