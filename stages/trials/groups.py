"""The trials of a task. Trials that the store lacks run in parallel processes."""

import gzip
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import groupby, product
from pathlib import Path

import torch
from pydantic import TypeAdapter
from tqdm import tqdm

from stages.core import paths
from stages.core.artifacts import read_json
from stages.core.keys import RunKey, TrialKey
from stages.core.params import Compute, Finetune
from stages.core.plans import FinetunePlan
from stages.evaluation.records import budget_order
from stages.models._backbone import Backbone
from stages.training.device import resolve, side_by_side
from stages.trials import store, workers
from stages.trials.compatibility import incompatibility
from stages.trials.kept import file_name
from stages.trials.runner import Trial, TrialRunner, is_first_seed, keeps_weights, method_of
from stages.trials.setup import TrialSetup

Group = list[TrialKey]  # of one checkpoint, task and method
RECORDS = "trial.json.gz"  # in an entry of the store
TRIAL_TYPE = TypeAdapter(Trial)  # to read trials from JSON


def trial_groups(
    finetune: Finetune,
    checkpoint: RunKey,
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
    ``weights[run]``.

    Runs the trials that the store lacks, ``threads // trial_threads`` groups in parallel. Neither
    this number nor the contents of the store change a result: each trial has its own seed, threads
    and order of data.

    Raises ValueError if groups failed. The trials of the other groups are in the store even then.
    """
    finetune, addresses = plan.finetune, dict[TrialKey, str]()
    for checkpoint, some in groupby(groups, key=lambda group: group[0].checkpoint):
        setup = TrialSetup(checkpoint, task, max_tokens=finetune.max_tokens)
        addresses |= addresses_of(finetune, plan.compute, setup, some)
    trials = {
        key: trial
        for key, address in addresses.items()
        if (trial := stored(finetune, key, address))
    }
    if trials:
        print(f"{task}: {len(trials)} of {len(addresses)} trials were in the store")
    missing = [[key for key in group if key not in trials] for group in groups]
    # The longest first, so that all processes end at about the same time.
    jobs = sorted(filter(None, missing), key=work, reverse=True)
    methods = {group[0].method for group in jobs}
    late = {name for method in methods for name in method_of(finetune, method).late_imports}
    done = workers.each(
        partial(_run_group, plan, addresses),
        jobs,
        at_once=side_by_side(plan.compute),
        late_imports=sorted(late),
    )
    failed = list[str]()
    for group, result in tqdm(done, total=len(jobs), desc=task, unit="group", disable=None):
        if isinstance(result, ValueError):
            first = group[0]
            failed.append(f"{first.checkpoint} on {task}, {first.method}: {result}")
        else:
            trials |= {trial.key: trial for trial in result}
    if failed:
        raise ValueError("\n".join(failed))
    for key, trial in trials.items():
        # A file without trained weights, which only records the trial, is always copied.
        if keeps_weights(finetune, key) or not trial.record.num_trained_params:
            file = store.root() / addresses[key] / file_name(key)
            shutil.copyfile(file, weights[key.run] / file.name)
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
    addresses = addresses_of(finetune, plan.compute, setup, [group])
    missing = [key for key in group if stored(finetune, key, addresses[key]) is None]
    return _run_group(plan, addresses, missing) if missing else []


def incompatibility_of(
    finetune: Finetune, setup: TrialSetup, backbone: Backbone, method: str
) -> str | None:
    """Returns why the method has no trials of this run and task, or None if it has some."""
    entry = finetune.methods[method]
    return entry.leaves_out(setup.checkpoint.run) or incompatibility(
        method_of(finetune, method),
        setup.task,
        setup.task_record["task"]["name"],
        backbone,
        text_to_text=entry.text_to_text,
    )


def work(group: Group) -> tuple[int, float]:
    """Returns a value that orders groups by their duration: the number of trials, then the
    largest label budget."""
    return len(group), max(budget_order(key.label_budget) for key in group)


def addresses_of(
    finetune: Finetune, compute: Compute, setup: TrialSetup, groups: Iterable[Group]
) -> dict[TrialKey, str]:
    """Returns the address of each trial in the store, in the order of the groups."""
    inputs = store.inputs_of(setup, resolve(compute, threads=compute.trial_threads))
    addresses = dict[TrialKey, str]()
    for key in (key for group in groups for key in group):
        entry = finetune.methods[key.method].of(key.run)
        modules = ["trials/runner", f"methods/{entry.method['name']}"]
        if entry.training:
            modules.append(f"optimizers/{entry.training.optimizer['name']}")
        settings = {"trial": key._asdict(), "method": entry.model_dump(exclude={"only"})}
        addresses[key] = store.address_of(inputs, settings, *modules)
    return addresses


def stored(finetune: Finetune, key: TrialKey, address: str) -> Trial | None:
    """Returns the trial from the store, or None if the store lacks the trial, or its weights or
    speed if the study needs them."""
    entry = store.find(address)
    if entry is None or (keeps_weights(finetune, key) and not (entry / file_name(key)).is_file()):
        return None
    trial = TRIAL_TYPE.validate_json(gzip.decompress((entry / RECORDS).read_bytes()))
    lacks_speed = is_first_seed(finetune, key) and trial.cost.latency_s is None
    return None if lacks_speed else trial


def _run_group(plan: FinetunePlan, addresses: Mapping[TrialKey, str], group: Group) -> list[Trial]:
    """Runs one trial after the other in this process, and puts each into the store."""
    device = resolve(plan.compute, threads=plan.compute.trial_threads)
    if device.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    draws = [group]
    if read_json(paths.examples(group[0].task) / "task.json")["split_seeds"]:  # with rows of each
        seeds = dict.fromkeys(key.finetune_seed for key in group)
        draws = [[key for key in group if key.finetune_seed == seed] for seed in seeds]
    trials = list[Trial]()
    for keys in draws:
        runner = TrialRunner(plan, device, keys=keys)
        for key in keys:
            with store.new_entry(addresses[key]) as folder:
                trials.append(runner.run(key, folder))
                with gzip.GzipFile(folder / RECORDS, "wb", mtime=0) as file:
                    file.write(json.dumps(asdict(trials[-1])).encode())
    return trials
