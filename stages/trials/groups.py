"""The trials of a task; those that the store lacks run in parallel processes."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch
from tqdm import tqdm

from stages.core import paths
from stages.core.params import Params
from stages.evaluation.records import budget_order
from stages.models._backbone import Backbone
from stages.training.checkpoint import Resumable
from stages.training.device import resolve, side_by_side
from stages.trials import store, workers
from stages.trials.compatibility import incompatibility
from stages.trials.outcome import Outcome, TrialKey
from stages.trials.runner import TrialRunner, is_first_seed, keeps_weights, method_of
from stages.trials.setup import TrialSetup

UNFINISHED = paths.SCRATCH / "finetune"  # the states of trials, by task and address

Group = list[TrialKey]  # of one method


def trial_groups(params: Params, run_key: str, methods: Iterable[str]) -> list[Group]:
    """The trials, by method in the order of params.yaml. A group runs in one process, one trial
    after the other: the trials that share the states of a frozen backbone, else one trial. From
    scratch each seed has a backbone of its own."""
    settings, result = params.finetune, list[Group]()
    from_scratch = params.pretrain[run_key].from_scratch
    for name in methods:
        keys = [
            TrialKey(name, str(budget), seed)
            for budget, seed in product(settings.label_budgets, settings.seeds)
        ]
        if not method_of(params, name).freezes_backbone:
            result += [[key] for key in keys]
        elif from_scratch:
            result += [[key for key in keys if key.finetune_seed == s] for s in settings.seeds]
        else:
            result.append(keys)
    return result


@dataclass(frozen=True)
class _Job:
    """The trials of a group that the store lacks, with their addresses."""

    params: Params
    run: str
    task: str
    addresses: dict[TrialKey, str]
    weights: Path | None  # the folder for kept weights; None: they stay in the store

    @property
    def name(self) -> str:
        """For messages."""
        first = next(iter(self.addresses))
        return f"{self.run} on {self.task}, {first.method}"


def run_trials(
    params: Params, task: str, groups: Mapping[str, Sequence[Group]], weights: Mapping[str, Path]
) -> dict[str, list[Outcome]]:
    """The outcomes of each run's groups, in their order; kept weights go to the run's folder in
    ``weights``.

    Runs the trials that the store lacks, ``threads // trial_threads`` groups in parallel. Neither
    their number nor what the store has changes a result: each trial has its own seed, threads and
    order of data.

    Raises ValueError if the store cannot be written or if groups failed; the others are in the
    store then.
    """
    store.check_writable()
    addresses = dict[str, dict[TrialKey, str]]()
    outcomes = dict[str, dict[TrialKey, Outcome]]()
    jobs = list[_Job]()
    for run, some in groups.items():
        setup = TrialSetup(run, task, max_tokens=params.finetune.max_tokens)
        addresses[run] = addresses_of(params, setup, some)
        outcomes[run] = _taken(params, addresses[run], weights[run])
        for group in some:
            missing = {key: addresses[run][key] for key in group if key not in outcomes[run]}
            if missing:
                jobs.append(_Job(params, run, task, missing, weights[run]))
    if taken := sum(map(len, outcomes.values())):
        print(f"{task}: {taken} of {sum(map(len, addresses.values()))} trials were in the store")
    # The longest first, so that all processes end at about the same time.
    jobs.sort(key=lambda job: work([*job.addresses]), reverse=True)
    failed = list[str]()
    at_once = side_by_side(params.compute)
    done = workers.each(_run_group, jobs, at_once=at_once, late_imports=workers.IMPORTED_BY_TRIALS)
    for job, result in tqdm(done, total=len(jobs), desc=task, unit="group", disable=None):
        if isinstance(result, ValueError):
            failed.append(f"{job.name}: {result}")
        else:
            outcomes[job.run] |= {outcome.key: outcome for outcome in result}
    if failed:
        raise ValueError("\n".join(failed))
    return {run: [outcomes[run][key] for key in keys] for run, keys in addresses.items()}


def fill_store(params: Params, run: str, task: str, group: Group) -> None:
    """Run the trials of a group that the store lacks; none if the method is incompatible.

    Raises ValueError if a trial fails or the store cannot be written.
    """
    store.check_writable()
    method, setup = group[0].method, TrialSetup(run, task, max_tokens=params.finetune.max_tokens)
    if incompatibility_of(params, setup, setup.outline(), method):
        return
    addresses = addresses_of(params, setup, [group])
    missing = {key: each for key, each in addresses.items() if stored(params, key, each) is None}
    if missing:
        _run_group(_Job(params, run, task, missing, weights=None))


def incompatibility_of(
    params: Params, setup: TrialSetup, backbone: Backbone, method: str
) -> str | None:
    """Why the method has no trials of this run and task; None if it has."""
    text_to_text = params.finetune.methods[method].text_to_text
    name = setup.task_record["task"]["name"]
    found = method_of(params, method)
    return incompatibility(found, setup.task, name, backbone, text_to_text=text_to_text)


def work(group: Group) -> tuple[int, float]:
    """How long a group takes, compared with others: by its trials, then by their labels."""
    return len(group), max(budget_order(key.label_budget) for key in group)


def _taken(
    params: Params, addresses: Mapping[TrialKey, str], weights: Path
) -> dict[TrialKey, Outcome]:
    """The trials that the store has; those that vanish meanwhile are computed."""
    found = dict[TrialKey, Outcome]()
    for key, address in addresses.items():
        trial = stored(params, key, address)
        if trial is None:
            continue
        with suppress(FileNotFoundError):
            _keep(params, key, trial.outcome, trial.weights, weights)
            store.mark_used(address)
            found[key] = trial.outcome
    return found


def _keep(
    params: Params, key: TrialKey, outcome: Outcome, file: Path | None, weights: Path | None
) -> None:
    """Copy the file with the weights of a trial to the folder ``weights``, if they are kept.
    Without trained weights it says which trial it is, and always is."""
    if file and weights and (keeps_weights(params, key) or not outcome.trial.num_trained_params):
        shutil.copyfile(file, weights / file.name)


def addresses_of(params: Params, setup: TrialSetup, groups: Iterable[Group]) -> dict[TrialKey, str]:
    """The address of each trial in the store, in the order of the groups."""
    device = resolve(params.compute, threads=params.compute.trial_threads)
    addresses = store.Addresses(params, setup, device)
    return {key: addresses.of(key) for group in groups for key in group}


def stored(params: Params, key: TrialKey, address: str) -> store.Stored | None:
    """The trial with all that the study asks of it, if the store has that."""
    first = is_first_seed(params, key)
    return store.load(address, with_weights=keeps_weights(params, key), with_speed=first)


def _run_group(job: _Job) -> list[Outcome]:
    """Train and predict one trial after the other, in this process."""
    params, group = job.params, [*job.addresses]
    device = resolve(params.compute, threads=params.compute.trial_threads)
    if device.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    runner = TrialRunner(params, job.run, job.task, device, keys=group)
    outcomes = list[Outcome]()
    for key, address in job.addresses.items():
        state = Resumable(address, address, scratch=UNFINISHED / job.task)
        with store.unfinished() as folder:
            outcome = runner.run(key, folder, state)
            _keep(params, key, outcome, next(folder.iterdir(), None), job.weights)
            store.save(address, outcome, folder)
        state.clear()
        outcomes.append(outcome)
    return outcomes
