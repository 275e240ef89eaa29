"""The trials of a task. Trials that the store lacks run in parallel processes."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby, product
from pathlib import Path

import torch
from tqdm import tqdm

from stages.core import paths
from stages.core.artifacts import read_json
from stages.core.keys import CheckpointKey, TrialKey
from stages.core.params import Finetune
from stages.core.plans import FinetunePlan
from stages.evaluation.records import budget_order
from stages.models._backbone import Backbone
from stages.training.device import resolve, side_by_side
from stages.trials import store, workers
from stages.trials.compatibility import incompatibility
from stages.trials.kept import file_name
from stages.trials.runner import Trial, TrialRunner, keeps_weights, method_of
from stages.trials.setup import TrialSetup

Group = list[TrialKey]  # of one checkpoint, task and method


def trial_groups(
    finetune: Finetune,
    checkpoint: CheckpointKey,
    task: str,
    methods: Iterable[str],
    *,
    from_scratch: bool,
) -> list[Group]:
    """Returns the trials of a checkpoint and a task in groups, in the order of ``methods``.

    A group runs in one process, one trial after the other. It has all trials that share the states
    of a frozen backbone, or one trial if the backbone trains. From scratch, each fine-tuning
    seed has a backbone of its own.
    """
    groups = list[Group]()
    for name in methods:
        keys = [
            TrialKey(*checkpoint, task, name, str(budget), seed)
            for budget, seed in product(finetune.label_budgets, finetune.seeds)
        ]
        if not method_of(finetune, name).freezes_backbone:
            groups += [[key] for key in keys]
        elif from_scratch:
            groups += [[key for key in keys if key.finetune_seed == s] for s in finetune.seeds]
        else:
            groups.append(keys)
    return groups


def run_trials(
    plan: FinetunePlan, task: str, groups: Sequence[Group], weights: Mapping[str, Path]
) -> list[Trial]:
    """Returns the trials of all groups, in their order. Kept weights are copied to the folder
    ``weights[model]``.

    Runs the trials that the store lacks, ``threads // trial_threads`` groups in parallel. Neither
    this number nor the contents of the store change a result: each trial has its own seed, threads
    and order of data.

    Raises ValueError if groups failed. The trials of the other groups are in the store even then.
    """
    finetune, addresses = plan.finetune, dict[TrialKey, str]()
    for checkpoint, some in groupby(groups, key=lambda group: group[0].checkpoint):
        setup = TrialSetup(checkpoint, task, max_tokens=finetune.max_tokens)
        addresses |= store.addresses_of(finetune, plan.compute, setup, some)
    trials = {
        key: trial
        for key, address in addresses.items()
        if (trial := store.stored(finetune, key, address))
    }
    if trials:
        print(f"{task}: {len(trials)} of {len(addresses)} trials were in the store")
    missing = [[key for key in group if key not in trials] for group in groups]
    # The longest first, so that all processes end at about the same time.
    jobs = sorted(filter(None, missing), key=_work, reverse=True)
    run, at_once, failed = partial(_run_group, plan, addresses), side_by_side(plan.compute), []
    for group, result in tqdm(
        workers.each(run, jobs, at_once=at_once),
        total=len(jobs),
        desc=task,
        unit="group",
        disable=None,
    ):
        if isinstance(result, ValueError):
            failed.append(f"{group[0].checkpoint} on {task}, {group[0].method}: {result}")
        else:
            trials |= {trial.key: trial for trial in result}
    if failed:
        raise ValueError("\n".join(failed))
    for key, trial in trials.items():
        # A file without trained weights, which only records the trial, is always copied.
        if keeps_weights(finetune, key) or not trial.record.num_trained_params:
            name = file_name(key)
            shutil.copyfile(store.ROOT / addresses[key] / name, weights[key.model] / name)
    return [trials[key] for key in addresses]


def fill_store(plan: FinetunePlan, group: Group) -> list[Trial]:
    """Runs the trials of a group that the store lacks, none if the method is incompatible, and
    returns them.

    Raises ValueError if a trial fails.
    """
    first, finetune = group[0], plan.finetune
    setup = TrialSetup(first.checkpoint, first.task, max_tokens=finetune.max_tokens)
    if incompatibility_of(finetune, setup, setup.outline(), first.method):
        return []
    addresses = store.addresses_of(finetune, plan.compute, setup, [group])
    missing = [key for key in group if store.stored(finetune, key, addresses[key]) is None]
    return _run_group(plan, addresses, missing)


def incompatibility_of(
    finetune: Finetune, setup: TrialSetup, backbone: Backbone, method: str
) -> str | None:
    """Returns why the method has no trials of this model and task, or None if it has some."""
    entry = finetune.methods[method]
    return entry.leaves_out(setup.checkpoint.model) or incompatibility(
        method_of(finetune, method),
        setup.task,
        setup.task_record["task"]["name"],
        backbone,
        text_to_text=entry.text_to_text,
    )


def _work(group: Group) -> tuple[int, float]:
    """Returns a value that orders groups by their duration."""
    return len(group), max(budget_order(key.label_budget) for key in group)


def _run_group(plan: FinetunePlan, addresses: Mapping[TrialKey, str], group: Group) -> list[Trial]:
    """Runs one trial after the other in this process, and puts each into the store."""
    device, trials = resolve(plan.compute, threads=plan.compute.trial_threads), list[Trial]()
    if device.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    draws = dict[int, Group]()  # trials that read the same rows
    for key in group:
        about = read_json(paths.examples(key.task) / "task.json")
        draws.setdefault(key.finetune_seed if about["split_seeds"] else 0, []).append(key)
    for keys in draws.values():
        runner = TrialRunner(plan, device, keys=keys)
        trials += [store.run_and_store(runner, key, addresses[key]) for key in keys]
    return trials
