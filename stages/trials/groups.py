"""The trials of a run and a task; those that the store lacks run in parallel processes."""

import multiprocessing
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from itertools import product
from pathlib import Path

from tqdm import tqdm

from stages.core.params import Params
from stages.core.process import die_with_parent
from stages.evaluation.records import budget_order
from stages.training.device import resolve, side_by_side
from stages.trials import store
from stages.trials.outcome import Outcome, TrialKey
from stages.trials.runner import TrialRunner, is_first_seed, keeps_weights, method_of
from stages.trials.setup import TrialSetup

Group = list[TrialKey]  # of one method
# Run, task, a group with its addresses, and where kept weights go.
Job = tuple[Params, str, str, dict[TrialKey, str], Path]


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


def run_groups(
    params: Params, run_key: str, task_key: str, groups: list[Group], weights: Path
) -> list[Outcome]:
    """The outcomes in the order of the groups; kept weights go to the folder ``weights``.

    Runs those that the store lacks, ``threads // trial_threads`` groups in parallel. Neither their
    number nor what the store has changes a result: each trial has its own seed, threads and order
    of data.

    Raises ValueError if the store cannot be written.
    """
    setup = TrialSetup(run_key, task_key, max_tokens=params.finetune.max_tokens)
    addresses = addresses_of(params, setup, groups)
    store.check_writable()
    outcomes = _taken(params, addresses, weights)
    if outcomes:
        print(f"{run_key} on {task_key}: {len(outcomes)} of {len(addresses)} trials were there")
    missing = [[key for key in group if key not in outcomes] for group in groups]
    # The longest first, so that all processes end at about the same time.
    jobs = [
        (params, run_key, task_key, {key: addresses[key] for key in group}, weights)
        for group in sorted(filter(None, missing), key=_work, reverse=True)
    ]
    description = f"{run_key} on {task_key}"
    with tqdm(total=len(jobs), desc=description, unit="group", disable=None) as progress:
        for done in _each(jobs, side_by_side(params.compute)):
            outcomes |= {outcome.key: outcome for outcome in done}
            progress.update()
    return [outcomes[key] for key in addresses]


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
    params: Params, key: TrialKey, outcome: Outcome, file: Path | None, weights: Path
) -> None:
    """Copy the file with the weights of a trial to the folder ``weights``, if they are kept.
    Without trained weights it says which trial it is, and always is."""
    if file and (keeps_weights(params, key) or not outcome.trial.num_trained_params):
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


def _work(group: Group) -> tuple[int, float]:
    """How long a group takes, compared with others: by its trials, then by their labels."""
    return len(group), max(budget_order(key.label_budget) for key in group)


def _each(jobs: list[Job], workers: int) -> Iterator[list[Outcome]]:
    """The outcomes of each group as soon as they are there."""
    if workers == 1:
        for job in jobs:
            yield _run_group(*job)
        return
    # A forked child starts at once. It is safe: this process has started no threads before.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    with ProcessPoolExecutor(workers, context, initializer=die_with_parent) as pool:
        for done in as_completed([pool.submit(_run_group, *job) for job in jobs]):
            yield done.result()


def _run_group(
    params: Params, run_key: str, task_key: str, addresses: dict[TrialKey, str], weights: Path
) -> list[Outcome]:
    """Train and predict one trial after the other, in this process."""
    device, group = resolve(params.compute, threads=params.compute.trial_threads), [*addresses]
    name = group[0].method
    text_to_text = params.finetune.methods[name].text_to_text
    runner = TrialRunner(params, run_key, task_key, device, keys=group, text_to_text=text_to_text)
    method, outcomes = method_of(params, name), list[Outcome]()
    for key, address in addresses.items():
        with store.unfinished() as folder:
            outcome = runner.run(key, method, folder)
            _keep(params, key, outcome, next(folder.iterdir(), None), weights)
            store.save(address, outcome, folder)
        outcomes.append(outcome)
    return outcomes
