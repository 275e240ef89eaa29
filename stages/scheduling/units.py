"""The units of work for workers: the stages that DVC would run, and parts of their work.

A stage pretrains all seeds of a model, one after the other. So each seed that the store of
checkpoints lacks is a unit. The unit puts its checkpoint into the store, where the stage finds it.

A stage ``finetune@TASK`` waits for every checkpoint, but a group of its trials needs only one
checkpoint and the prepared task. The group runs once both exist and puts its trials into the store
of trials.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import product

from stages.budgets.budget import matched
from stages.core.keys import CheckpointKey, TrialKey
from stages.core.params import Finetune, Params
from stages.methods._method import SolvedMethod
from stages.planning.costs import finetunings, pretrainings
from stages.planning.stored import Stores
from stages.scheduling.worker import Unit
from stages.trials.groups import trial_groups
from stages.trials.runner import method_of


def units(params: Params, pending: Mapping[str, Collection[str]]) -> list[Unit]:
    """Returns the ``pending`` stages and the parts of their work, each after the units that it
    needs."""
    study = matched(params)
    stores = Stores(study, pending)
    tasks = {task: entry for task, entry in study.tasks.items() if f"finetune@{task}" in pending}
    study = study.model_copy(update={"tasks": tasks})
    tune, stored = study.finetune, stores.trials()
    costs = pretrainings(study, {name: stores.missing_seeds(name) for name in study.models})
    costs += finetunings(study, stored)
    works = {key: work for cost in costs for key, work in cost.works.items()}
    own_work, parts = dict[str, float](), defaultdict[str, list[Unit]](list)
    for name, model in study.models.items():
        stage = f"pretrain@{name}"
        keys = [key for seed in model.seeds if (key := CheckpointKey(name, seed)) in works]
        if len(keys) == 1:  # the stage trains it itself
            own_work[stage] = works[keys[0]]
            continue
        for key in keys:
            unit, needs = f"pretrain_seed@{name}-{key.pretrain_seed}", (*pending[stage],)
            parts[stage].append(Unit(unit, needs, f"pretrain {key}", key, work=works[key]))
    for task, (name, model) in product(tasks, study.models.items()):
        before = f"pretrain@{name}", f"prepare_task@{task}"
        needs = tuple(stage for stage in before if stage in pending)
        methods, scratch = tune.methods_of(name), model.from_scratch
        for key in (CheckpointKey(name, seed) for seed in model.seeds):
            for group in trial_groups(tune, key, task, methods, from_scratch=scratch):
                if trials := tuple(trial for trial in group if trial in works):
                    work = sum(works[trial] for trial in trials)
                    unit, title = _names(trials, tune)
                    solved = isinstance(method_of(tune, trials[0].method), SolvedMethod)
                    part = Unit(unit, needs, title, trials=trials, work=work, is_solved=solved)
                    parts[f"finetune@{task}"].append(part)
    result = list[Unit]()
    for stage, before in pending.items():
        verb, _, name = stage.partition("@")
        own, title = parts[stage], f"{verb.replace('_', ' ')} {name}".strip()
        scores = tuple(
            (key, score)
            for key, score in stored.items()
            if stage == f"finetune@{key.task}" and score is not None
        )
        needs = (*before, *(unit.name for unit in own))
        work = own_work.get(stage, 0.0)
        result += [*own, Unit(stage, needs, title, stored=scores, work=work)]
    return result


def _names(trials: tuple[TrialKey, ...], finetune: Finetune) -> tuple[str, str]:
    """Returns the name and the title of a unit of trials. The title has those of method, labels and
    seeds of which the study has several."""
    first, about = trials[0], list[str]()
    if len(finetune.methods) > 1:
        about.append(first.method)
    if len({*finetune.label_budgets}) > 1 and len({key.label_budget for key in trials}) == 1:
        about.append(f"{first.label_budget} labels")
    about.append(f"seed {first.pretrain_seed}")
    if len(finetune.seeds) > 1 and len({key.finetune_seed for key in trials}) == 1:
        about[-1] += f" and {first.finetune_seed}"
    parts = (first.task, first.model, first.pretrain_seed, *first[3:])
    name = "trials@" + "-".join(map(str, parts))
    return name, f"fine-tune {first.model} on {first.task}, {', '.join(about)}"
