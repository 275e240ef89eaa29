"""The units of work for workers: the stages that DVC would run, and parts of their work.

A stage pretrains all seeds of a run, one after the other. So each seed that the store of
checkpoints lacks is a unit. The unit puts its checkpoint into the store, where the stage finds it.

A stage ``finetune@TASK`` waits for every checkpoint, but a group of its trials needs only one run
and the prepared task. The group runs once both exist and puts its trials into the store of trials.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import product

from stages.budgets.budget import matched
from stages.core.keys import RunKey, TrialKey
from stages.core.params import Finetune, Params
from stages.planning.costs import finetunings, pretrainings
from stages.planning.stored import Stores, pretraining_stage
from stages.scheduling.unit import Unit
from stages.trials.groups import trial_groups
from stages.trials.groups import work as duration_order


def units(params: Params, pending: Mapping[str, Collection[str]]) -> list[Unit]:
    """Returns the ``pending`` stages and the parts of their work, each after the units that it
    needs.

    Everything that trials need comes before all trials, because pretraining is the longest path.
    """
    study = matched(params)
    stores = Stores(study, pending)
    tasks = {task: entry for task, entry in study.tasks.items() if f"finetune@{task}" in pending}
    study = study.model_copy(update={"tasks": tasks})
    pretrained = pretrainings(study, {name: stores.missing_seeds(name) for name in study.runs})
    stored = stores.trials()
    trained = finetunings(study, stored)
    works = {key: work for cost in (*pretrained, *trained) for key, work in cost.works.items()}
    needs = {stage: [*others] for stage, others in pending.items()}
    own_work, seeds, trials = dict[str, float](), defaultdict[str, list[Unit]](list), list[Unit]()
    for name, run in study.runs.items():
        stage = pretraining_stage(name, run)
        checkpoints = [key for key in works if isinstance(key, RunKey) and key.run == name]
        if len(checkpoints) < 2:  # the stage trains it itself
            own_work[stage] = sum(works[key] for key in checkpoints)
            continue
        for key in checkpoints:
            unit, needed = f"pretrain_seed@{name}-{key.pretrain_seed}", (*pending[stage],)
            seeds[stage].append(Unit(unit, needed, f"pretrain {key}", key, work=works[key]))
            needs[stage].append(unit)
    for group in _groups(study, works):
        first = group[0]
        stage = f"finetune@{first.task}"
        needed = (
            pretraining_stage(first.run, study.runs[first.run]),
            f"prepare_task@{first.task}",
        )
        parts = (first.task, first.run, first.pretrain_seed, first.method, first.label_budget)
        unit = "trials@" + "-".join(map(str, (*parts, first.finetune_seed)))
        trials.append(
            Unit(
                unit,
                tuple(stage for stage in needed if stage in pending),
                _title(group, study.finetune),
                trials=tuple(group),
                work=sum(works[key] for key in group),
            )
        )
        needs[stage].append(unit)

    def of_stage(name: str) -> Unit:
        task = name.removeprefix("finetune@")
        known = ((key, score) for key, score in stored.items() if key.task == task)
        scores = tuple((key, score) for key, score in known if score is not None)
        work = own_work.get(name, 0.0)
        return Unit(name, (*needs[name],), _stage_title(name), work=work, stored=scores)

    later = set[str]()  # the stages that fine-tune, and the stages that need them
    result = list[Unit]()
    for name, others in pending.items():
        if name.startswith("finetune@") or not later.isdisjoint(others):
            later.add(name)
        else:
            result += [*seeds[name], of_stage(name)]
    return [*result, *trials, *(of_stage(name) for name in pending if name in later)]


def _groups(study: Params, works: Collection[RunKey | TrialKey]) -> list[list[TrialKey]]:
    """Returns the groups of the trials that would run, the longest first, so that all workers end
    at about the same time."""
    groups = list[list[TrialKey]]()
    for task, (name, run) in product(study.tasks, study.runs.items()):
        for seed in run.seeds:
            methods, key = study.finetune.methods_of(name), RunKey(name, seed)
            of_key = trial_groups(study.finetune, key, task, methods, from_scratch=run.from_scratch)
            groups += [[trial for trial in group if trial in works] for group in of_key]
    return sorted(filter(None, groups), key=duration_order, reverse=True)


def _title(group: list[TrialKey], finetune: Finetune) -> str:
    """Returns a group's name for people, with the method and the labels if the study has several of
    them."""
    first, parts = group[0], list[str]()
    if len(finetune.methods) > 1:
        parts.append(first.method)
    if len({*finetune.label_budgets}) > 1 and len({key.label_budget for key in group}) == 1:
        parts.append(f"{first.label_budget} labels")
    parts.append(f"seed {first.pretrain_seed}")
    if len(finetune.seeds) > 1 and len({key.finetune_seed for key in group}) == 1:
        parts[-1] += f" and {first.finetune_seed}"
    return f"fine-tune {first.run} on {first.task}, {', '.join(parts)}"


def _stage_title(stage: str) -> str:
    verb, _, key = stage.partition("@")
    return f"{verb.replace('_', ' ')} {key}".strip()
