"""Fine-tune a run on a task: every method, label budget and seed, and predict the test inputs."""

import multiprocessing
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Any

from tqdm import tqdm

from stages.core import paths
from stages.core.artifacts import replacing
from stages.core.params import Params, entry
from stages.core.process import die_with_parent, run_stage
from stages.evaluation import records
from stages.training.device import resolve, side_by_side
from stages.trials.compatibility import incompatibility
from stages.trials.runner import Outcome, TrialKey, TrialRunner, method_of
from stages.trials.setup import TrialSetup


def main(params: Params, run_key: str, task_key: str) -> None:
    entry(params.pretrain, run_key, where="pretrain")
    entry(params.tasks, task_key, where="tasks")
    skipped = misfits(params, run_key, task_key)
    for each in skipped:
        print(f"{run_key} on {task_key} without {each.method}: {each.reason}")
    methods = [key for key in params.finetune.methods if key not in {s.method for s in skipped}]
    cells = groups(params, methods)
    with replacing(paths.FINETUNED / task_key / run_key) as folder:
        (folder / "weights").mkdir(parents=True)
        # The longest first, so that all processes end at about one time.
        longest_first = sorted(cells, key=_extent, reverse=True)
        jobs = [(params, run_key, task_key, group, folder / "weights") for group in longest_first]
        outcomes = sorted(_run_jobs(params, jobs, f"{run_key} on {task_key}"), key=_place(cells))
        records.write(folder / "skipped.csv", records.SkippedMethod, skipped)
        records.write(folder / "trials.csv", records.TrialRecord, [o.trial for o in outcomes])
        records.write(
            folder / "history.csv", records.EpochRecord, [e for o in outcomes for e in o.epochs]
        )
        predictions = [p for o in outcomes for p in o.predictions]
        records.write(folder / "predictions.csv.gz", records.PredictionRecord, predictions)
    for method in methods:
        trial = next(o.trial for o in outcomes if o.trial.method == method)
        print(f"{run_key} on {task_key}: {method} trained {trial.num_trained_params:,} weights")
    costs = [outcome.cost for outcome in outcomes]
    records.write(
        paths.TIMINGS / "finetune" / task_key / f"{run_key}.csv", records.CostRecord, costs
    )


def misfits(params: Params, run_key: str, task_key: str) -> list[records.SkippedMethod]:
    """The methods of which this run and this task have no trials."""
    setup = TrialSetup(run_key, task_key, max_tokens=params.finetune.max_tokens)
    backbone, name = setup.outline(), setup.task_record["task"]["name"]
    reasons = {
        key: incompatibility(
            method_of(params, key), setup.task, name, backbone, text_to_text=entry.text_to_text
        )
        for key, entry in params.finetune.methods.items()
    }
    return [
        records.SkippedMethod(run=run_key, method=key, reason=reason)
        for key, reason in reasons.items()
        if reason
    ]


def groups(params: Params, methods: Iterable[str]) -> list[list[TrialKey]]:
    """The trials, in groups that run one after the other in one process: those that share the
    states of a frozen backbone, else one trial each."""
    settings, result = params.finetune, []
    for name in methods:
        cells = [
            TrialKey(name, str(budget), seed)
            for budget, seed in product(settings.label_budgets, settings.seeds)
        ]
        shared = method_of(params, name).freezes_backbone
        result += [cells] if shared else [[cell] for cell in cells]
    return result


def _extent(group: list[TrialKey]) -> tuple[int, float]:
    """How much there is to do, compared with other groups: the trials, then their labels."""
    budgets = [
        float("inf") if cell.label_budget == "all" else int(cell.label_budget) for cell in group
    ]
    return len(group), max(budgets)


def _place(cells: list[list[TrialKey]]) -> Any:
    """The order of rows in files: that of params.yaml, whichever process was first."""
    order = [cell for group in cells for cell in group]

    def place(outcome: Outcome) -> int:
        trial = outcome.trial
        return order.index(TrialKey(trial.method, trial.label_budget, trial.finetune_seed))

    return place


def _run_jobs(params: Params, jobs: list[Any], description: str) -> Iterator[Outcome]:
    """Groups side by side, ``threads // trial_threads`` at a time.

    Their number changes no result: each trial has its own seed, threads and order of data.
    """
    workers = side_by_side(params.compute)
    with tqdm(total=len(jobs), desc=description, unit="group", disable=None) as progress:
        if workers == 1:
            for job in jobs:
                yield from run_group(*job)
                progress.update()
            return
        # Forked children start in no time; this process has run nothing in parallel before.
        context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        with ProcessPoolExecutor(workers, context, initializer=die_with_parent) as pool:
            for done in as_completed([pool.submit(run_group, *job) for job in jobs]):
                yield from done.result()
                progress.update()


def run_group(
    params: Params, run_key: str, task_key: str, cells: list[TrialKey], weights: Path
) -> list[Outcome]:
    """Train and predict with one method after the other, in this process."""
    device = resolve(params.compute, threads=params.compute.trial_threads)
    name = cells[0].method
    text_to_text = params.finetune.methods[name].text_to_text
    bench = TrialRunner(params, run_key, task_key, device, text_to_text=text_to_text)
    method = method_of(params, name)
    return [bench.run(cell, method, weights) for cell in cells]


if __name__ == "__main__":
    run_stage(main, "run", "task", repeats=lambda raw, run, task: [raw["finetune"], raw["compute"]])
