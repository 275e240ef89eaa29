"""The units of work for workers: the stages that DVC would run, and parts of their work.

A stage pretrains all seeds of a run, one after the other. So each seed that the store of
checkpoints lacks is a unit. The unit puts its checkpoint into the store, where the stage finds it.

A stage ``finetune@TASK`` waits for every checkpoint, but a group of its trials needs only one run
and the prepared task. The group runs once both exist and puts its trials into the store of trials.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import product

from stages.budgets.budget import matched
from stages.core.keys import RunKey, TrialKey
from stages.core.params import Finetune, Params
from stages.planning.costs import finetunings, pretrainings
from stages.planning.stored import Stores, pretraining_stage
from stages.scheduling.worker import Unit
from stages.trials.groups import trial_groups


def units(params: Params, pending: Mapping[str, Collection[str]]) -> list[Unit]:
    """Returns the ``pending`` stages and the parts of their work, each after the units that it
    needs."""
    study = matched(params)
    stores = Stores(study, pending)
    tasks = {task: entry for task, entry in study.tasks.items() if f"finetune@{task}" in pending}
    study = study.model_copy(update={"tasks": tasks})
    stored = stores.trials()
    costs = pretrainings(study, {name: stores.missing_seeds(name) for name in study.runs})
    costs += finetunings(study, stored)
    works = {key: work for cost in costs for key, work in cost.works.items()}
    own_work, parts = dict[str, float](), defaultdict[str, list[Unit]](list)
    for name, run in study.runs.items():
        stage = pretraining_stage(name, run)
        keys = [key for seed in run.seeds if (key := RunKey(name, seed)) in works]
        if len(keys) == 1:  # the stage trains it itself
            own_work[stage] = works[keys[0]]
            continue
        for key in keys:
            unit, needs = f"pretrain_seed@{name}-{key.pretrain_seed}", (*pending[stage],)
            parts[stage].append(Unit(unit, needs, f"pretrain {key}", key, work=works[key]))
    for task, (name, run) in product(tasks, study.runs.items()):
        needed = (pretraining_stage(name, run), f"prepare_task@{task}")
        needs = tuple(stage for stage in needed if stage in pending)
        methods = study.finetune.methods_of(name)
        for key in (RunKey(name, seed) for seed in run.seeds):
            for group in trial_groups(
                study.finetune, key, task, methods, from_scratch=run.from_scratch
            ):
                if trials := [trial for trial in group if trial in works]:
                    work = sum(works[trial] for trial in trials)
                    parts[f"finetune@{task}"].append(
                        _of_trials(trials, needs, work, study.finetune)
                    )
    result = list[Unit]()
    for stage, needed in pending.items():
        verb, _, name = stage.partition("@")
        own = parts[stage]
        scores = tuple(
            (key, score)
            for key, score in stored.items()
            if stage == f"finetune@{key.task}" and score is not None
        )
        needs = (*needed, *(unit.name for unit in own))
        title = f"{verb.replace('_', ' ')} {name}".strip()
        work = own_work.get(stage, 0.0)
        result += [*own, Unit(stage, needs, title, stored=scores, work=work)]
    return result


def _of_trials(
    trials: Sequence[TrialKey], needs: tuple[str, ...], work: float, finetune: Finetune
) -> Unit:
    """Returns a unit, whose title has those of method, labels and seeds of which the study has
    several."""
    first, about = trials[0], list[str]()
    if len(finetune.methods) > 1:
        about.append(first.method)
    if len({*finetune.label_budgets}) > 1 and len({key.label_budget for key in trials}) == 1:
        about.append(f"{first.label_budget} labels")
    about.append(f"seed {first.pretrain_seed}")
    if len(finetune.seeds) > 1 and len({key.finetune_seed for key in trials}) == 1:
        about[-1] += f" and {first.finetune_seed}"
    title = f"fine-tune {first.run} on {first.task}, {', '.join(about)}"
    parts = (first.task, first.run, first.pretrain_seed, first.method, first.label_budget)
    name = "trials@" + "-".join(map(str, (*parts, first.finetune_seed)))
    return Unit(name, needs, title, trials=tuple(trials), work=work)
