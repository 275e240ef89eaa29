"""The units of work for workers: the stages that DVC would run, and groups of trials.

A stage ``finetune@TASK`` waits for every checkpoint. A group of its trials needs one checkpoint and
the task: the group runs as soon as both exist and puts its trials into the store, where the stage
finds them.
"""

from collections.abc import Collection, Mapping
from dataclasses import astuple
from itertools import product

from stages.core.params import Params
from stages.planning.stored_trials import stored_trials
from stages.scheduling.unit import Trials, Unit
from stages.trials.groups import Group, trial_groups, work


def units(params: Params, pending: Mapping[str, Collection[str]]) -> list[Unit]:
    """Returns the ``pending`` stages and their trials, each after the units that it needs.

    Everything that trials need comes before all trials, because pretraining is the longest path.
    """
    later = set[str]()  # the stages that fine-tune, and what follows from them
    for stage, needs in pending.items():
        if stage.startswith("finetune@") or not later.isdisjoint(needs):
            later.add(stage)
    groups = [*_groups(params, pending)]
    result = [Unit(stage, (*needs,)) for stage, needs in pending.items() if stage not in later]
    for group in groups:
        result.append(Unit(group.name, (*(n for n in group.needs if n in pending),), group))
    for stage, needs in pending.items():
        if stage in later:
            trials = [each.name for each in groups if stage == f"finetune@{each.task}"]
            result.append(Unit(stage, (*needs, *trials)))
    return result


def _groups(params: Params, pending: Collection[str]) -> list[Trials]:
    """Returns the trials that the store lacks, the longest groups first, so that all workers end at
    about the same time.

    A study that screens has only the trials of runs from scratch here: the stage itself chooses the
    others once all estimates are known.
    """
    tasks = [task for task in params.tasks if f"finetune@{task}" in pending]
    stored = stored_trials(params, pending) if tasks else {}
    groups = list[tuple[str, str, Group]]()
    screens = params.finetune.screen is not None
    runs = [key for key, run in params.pretrain.items() if run.from_scratch or not screens]
    for task, run in product(tasks, runs):
        finished = stored.get((run, task), ())
        for group in trial_groups(params, run, params.finetune.methods):
            if missing := [key for key in group if key not in finished]:
                groups.append((run, task, missing))
    groups.sort(key=lambda each: work(each[-1]), reverse=True)
    return [Trials(run, task, (*map(astuple, keys),)) for run, task, keys in groups]
