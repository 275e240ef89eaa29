"""The trials of a task. Trials that the store lacks run in parallel processes."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch
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
from stages.trials.outcome import Outcome
from stages.trials.runner import TrialRunner, is_first_seed, keeps_weights, method_of
from stages.trials.setup import TrialSetup

Group = list[TrialKey]  # of one checkpoint, task and method


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


@dataclass(frozen=True)
class _Job:
    """The trials of a group that the store lacks, with their addresses."""

    plan: FinetunePlan
    addresses: dict[TrialKey, str]
    weights: Path | None  # the folder for kept weights; None: they stay in the store

    @property
    def method(self) -> str:
        return next(iter(self.addresses)).method

    @property
    def name(self) -> str:
        """The checkpoint, task and method of the trials, for messages."""
        first = next(iter(self.addresses))
        return f"{first.checkpoint} on {first.task}, {first.method}"


def run_trials(
    plan: FinetunePlan,
    task: str,
    groups: Mapping[RunKey, Sequence[Group]],
    weights: Mapping[str, Path],
) -> dict[RunKey, list[Outcome]]:
    """Returns the outcomes of each checkpoint's groups, in the order of the groups. Kept weights go
    to the folder ``weights[run]``.

    Runs the trials that the store lacks, ``threads // trial_threads`` groups in parallel. Neither
    this number nor the contents of the store change a result: each trial has its own seed, threads
    and order of data.

    Raises ValueError if the store cannot be written or if groups failed. The trials of the other
    groups are in the store even then.
    """
    store.check_writable()
    finetune = plan.finetune
    addresses = dict[RunKey, dict[TrialKey, str]]()
    outcomes = dict[TrialKey, Outcome]()
    jobs = list[_Job]()
    for checkpoint, of_checkpoint in groups.items():
        setup = TrialSetup(checkpoint, task, max_tokens=finetune.max_tokens)
        address = addresses_of(finetune, plan.compute, setup, of_checkpoint)
        folder = weights[checkpoint.run]
        outcomes |= _stored_outcomes(finetune, address, folder)
        for group in of_checkpoint:
            missing = {key: address[key] for key in group if key not in outcomes}
            if missing:
                jobs.append(_Job(plan, missing, folder))
        addresses[checkpoint] = address
    if outcomes:
        number = sum(map(len, addresses.values()))
        print(f"{task}: {len(outcomes)} of {number} trials were in the store")
    # The longest first, so that all processes end at about the same time.
    jobs.sort(key=lambda job: work([*job.addresses]), reverse=True)
    failed = list[str]()
    at_once = side_by_side(plan.compute)
    methods = {job.method for job in jobs}
    late = {name for method in methods for name in method_of(finetune, method).late_imports}
    done = workers.each(_run_group, jobs, at_once=at_once, late_imports=sorted(late))
    for job, result in tqdm(done, total=len(jobs), desc=task, unit="group", disable=None):
        if isinstance(result, ValueError):
            failed.append(f"{job.name}: {result}")
        else:
            outcomes |= {outcome.key: outcome for outcome in result}
    if failed:
        raise ValueError("\n".join(failed))
    return {
        checkpoint: [outcomes[key] for key in of_checkpoint]
        for checkpoint, of_checkpoint in addresses.items()
    }


def fill_store(plan: FinetunePlan, group: Group) -> list[Outcome]:
    """Runs the trials of a group that the store lacks, none if the method is incompatible, and
    returns their outcomes.

    Raises ValueError if a trial fails or the store cannot be written.
    """
    store.check_writable()
    first, finetune = group[0], plan.finetune
    setup = TrialSetup(first.checkpoint, first.task, max_tokens=finetune.max_tokens)
    if incompatibility_of(finetune, setup, setup.outline(), first.method):
        return []
    addresses = addresses_of(finetune, plan.compute, setup, [group])
    missing = {
        key: address for key, address in addresses.items() if stored(finetune, key, address) is None
    }
    return _run_group(_Job(plan, missing, weights=None)) if missing else []


def incompatibility_of(
    finetune: Finetune, setup: TrialSetup, backbone: Backbone, method: str
) -> str | None:
    """Returns why the method has no trials of this run and task, or None if it has some."""
    entry = finetune.methods[method]
    if reason := entry.leaves_out(setup.checkpoint.run):
        return reason
    name = setup.task_record["task"]["name"]
    component = method_of(finetune, method)
    return incompatibility(component, setup.task, name, backbone, text_to_text=entry.text_to_text)


def work(group: Group) -> tuple[int, float]:
    """Returns a value that orders groups by their duration: the number of trials, then the
    largest label budget."""
    return len(group), max(budget_order(key.label_budget) for key in group)


def _stored_outcomes(
    finetune: Finetune, addresses: Mapping[TrialKey, str], weights: Path
) -> dict[TrialKey, Outcome]:
    """Returns the outcomes of the trials that the store has, and copies their kept weights to the
    folder ``weights``. Trials that are deleted meanwhile are left out."""
    outcomes = dict[TrialKey, Outcome]()
    for key, address in addresses.items():
        trial = stored(finetune, key, address)
        if trial is None:
            continue
        with suppress(FileNotFoundError):
            _keep(finetune, key, trial.outcome, trial.weights, weights)
            outcomes[key] = trial.outcome
    return outcomes


def _keep(
    finetune: Finetune, key: TrialKey, outcome: Outcome, file: Path | None, weights: Path | None
) -> None:
    """Copies the ``file`` of a trial to the folder ``weights`` if the study keeps its weights. A
    file without trained weights, which only records the trial, is always copied."""
    if file and weights and (keeps_weights(finetune, key) or not outcome.trial.num_trained_params):
        shutil.copyfile(file, weights / file.name)


def addresses_of(
    finetune: Finetune, compute: Compute, setup: TrialSetup, groups: Iterable[Group]
) -> dict[TrialKey, str]:
    """Returns the address of each trial in the store, in the order of the groups."""
    device = resolve(compute, threads=compute.trial_threads)
    addresses = store.Addresses(finetune, setup, device)
    return {key: addresses.of(key) for group in groups for key in group}


def stored(finetune: Finetune, key: TrialKey, address: str) -> store.Stored | None:
    """Returns the trial from the store, or None if the store lacks the trial, or its weights or
    speed if the study needs them."""
    first = is_first_seed(finetune, key)
    return store.load(address, with_weights=keeps_weights(finetune, key), with_speed=first)


def _run_group(job: _Job) -> list[Outcome]:
    """Trains and predicts one trial after the other, in this process."""
    plan = job.plan
    device = resolve(plan.compute, threads=plan.compute.trial_threads)
    if device.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    outcomes = list[Outcome]()
    for keys in _by_draw([*job.addresses]):
        runner = TrialRunner(plan, device, keys=keys)
        for key in keys:
            address = job.addresses[key]
            with store.unfinished() as folder:
                outcome = runner.run(key, folder)
                _keep(plan.finetune, key, outcome, next(folder.iterdir(), None), job.weights)
                store.save(address, outcome, folder)
            outcomes.append(outcome)
    return outcomes


def _by_draw(keys: list[TrialKey]) -> list[list[TrialKey]]:
    """Returns the trials of a task in lists, one for each draw of the splits."""
    if not read_json(paths.examples(keys[0].task) / "task.json")["split_seeds"]:
        return [keys]
    seeds = dict.fromkeys(key.finetune_seed for key in keys)
    return [[key for key in keys if key.finetune_seed == seed] for seed in seeds]
