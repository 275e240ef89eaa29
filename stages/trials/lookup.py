"""Finds a kept trial of a run and a task by its method, label budget and seeds."""

from contextlib import suppress

from stages.core import paths
from stages.core.components import unknown
from stages.core.keys import TrialKey
from stages.core.study_file import load
from stages.evaluation import records
from stages.trials.kept import KeptTrial, kept_trials, path_of, read, setup_of, weights_folder
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
    baselines = _baselines(run, task)
    kept = baselines or _kept_of_run(run, task)
    if baselines and finetune_seed is None:
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
    raise ValueError(f"no kept trial matches; kept are: {listed}{'' if baselines else why}")


def _kept_of_run(run: str, task: str) -> list[TrialKey]:
    """Returns the kept trials of a run on a task; raises ValueError if there are none."""
    folder = weights_folder(run, task)
    if not folder.is_dir():
        raise ValueError(_why_missing(run, task))
    trials = folder.with_name("trials.csv")
    if kept := kept_trials(run, task):
        # In the order of the run's seeds in params.yaml, as trials.csv has them.
        rows = [row.key for row in records.read(trials, records.TrialRecord)]
        seeds = [*dict.fromkeys(key.pretrain_seed for key in [*rows, *kept])]
        return sorted(kept, key=lambda key: seeds.index(key.pretrain_seed))
    if trials.is_file() and not records.read(trials, records.TrialRecord):
        raise ValueError(
            f"{trials}: {run} was not fine-tuned on {task}: no method of the study fits"
        )
    raise ValueError(f"{folder}: no trial is kept; set finetune.keep_weights and rerun")


def _baselines(run: str, task: str) -> list[TrialKey]:
    """Returns the trials of a baseline on a task, all of which are kept; empty if ``run`` is no
    baseline. Raises ValueError for an external system."""
    trials = paths.BASELINES / task / "trials.csv"
    rows = records.read(trials, records.TrialRecord) if trials.is_file() else []
    own = [row for row in rows if row.run == run]
    if any(row.num_tries == 0 for row in own):
        raise ValueError(f"{run} is an external system: the study has its predictions, not it")
    return [row.key for row in own]


def _why_missing(run: str, task: str) -> str:
    with suppress(ValueError):  # a kept trial can be used even if params.yaml cannot be read
        params = load()
        if task not in params.tasks:
            return f"tasks: {unknown(task, params.tasks)}"
        if run in params.baselines:
            trials = paths.BASELINES / task / "trials.csv"
            if trials.is_file():
                return f"{trials}: {run} does not fit the rows of {task}"
            return f"{trials}: no such file; `dvc repro fit_baseline@{task}` writes it"
        if run not in params.runs:
            return f"pretrain.runs, baselines: {unknown(run, [*params.runs, *params.baselines])}"
    folder = weights_folder(run, task).parent
    return f"{folder}: no such folder; `dvc repro finetune@{task}` writes it"


def opened(key: TrialKey) -> tuple[KeptTrial, TrialSetup]:
    """Returns the record of a kept trial, and the set-up of its checkpoint and task.

    Raises ValueError if the checkpoint or the task has changed since.
    """
    path = path_of(key)
    kept = read(path)
    return kept, setup_of(kept, path)
