"""The trials of a run and a task, in groups that run in parallel processes."""

import multiprocessing
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path

from tqdm import tqdm

from stages.core.params import Params
from stages.core.process import die_with_parent
from stages.evaluation.records import budget_order
from stages.training.device import resolve, side_by_side
from stages.trials.outcome import Outcome, TrialKey
from stages.trials.runner import TrialRunner, method_of

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


def run_groups(
    params: Params, run_key: str, task_key: str, groups: list[Group], weights: Path
) -> list[Outcome]:
    """The outcomes in the order of the groups; kept weights go to the folder ``weights``.

    Runs ``threads // trial_threads`` groups in parallel. Their number changes no result: each
    trial has its own seed, threads and order of data.
    """
    # The longest first, so that all processes end at about the same time.
    jobs = [
        (params, run_key, task_key, group, weights)
        for group in sorted(groups, key=_work, reverse=True)
    ]
    outcomes = dict[TrialKey, Outcome]()
    description = f"{run_key} on {task_key}"
    with tqdm(total=len(jobs), desc=description, unit="group", disable=None) as progress:
        for done in _each(jobs, side_by_side(params.compute)):
            outcomes |= {outcome.key: outcome for outcome in done}
            progress.update()
    return [outcomes[key] for group in groups for key in group]


def _work(group: Group) -> tuple[int, float]:
    """How long a group takes, compared with others: by its trials, then by their labels."""
    return len(group), max(budget_order(key.label_budget) for key in group)


def _each(
    jobs: list[tuple[Params, str, str, Group, Path]], workers: int
) -> Iterator[list[Outcome]]:
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
    params: Params, run_key: str, task_key: str, group: Group, weights: Path
) -> list[Outcome]:
    """Train and predict one trial after the other, in this process."""
    device = resolve(params.compute, threads=params.compute.trial_threads)
    name = group[0].method
    text_to_text = params.finetune.methods[name].text_to_text
    runner = TrialRunner(params, run_key, task_key, device, keys=group, text_to_text=text_to_text)
    method = method_of(params, name)
    return [runner.run(key, method, weights) for key in group]
