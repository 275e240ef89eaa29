"""Fine-tune every checkpoint on a task with each method, label budget and seed, and predict the
test inputs. Trials in the store are not computed again."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain

from stages.core import paths
from stages.core.artifacts import replacing
from stages.core.keys import RunKey
from stages.core.plans import FinetunePlan
from stages.core.process import run_stage
from stages.evaluation import records
from stages.evaluation.transferability import EstimateRecord
from stages.training.device import side_by_side
from stages.trials import workers
from stages.trials.estimates import estimated, input_records
from stages.trials.groups import Group, incompatibility_of, run_trials, trial_groups
from stages.trials.setup import TrialSetup

Texts = tuple[list[records.InputRecord], list[EstimateRecord]]


def main(plan: FinetunePlan, task: str) -> str:
    """Writes the results of all trials of the task.

    Raises ValueError if trials failed. The other trials are then in the store.
    """
    skipped = {run: skipped_methods(plan, run, task) for run in plan.runs}
    methods, groups = dict[str, list[str]](), list[Group]()
    for run, settings in plan.runs.items():
        left_out = {row.method for row in skipped[run]}
        methods[run] = [method for method in plan.finetune.methods if method not in left_out]
        scratch = settings.from_scratch
        for key in (RunKey(run, seed) for seed in settings.seeds):
            groups += trial_groups(plan.finetune, key, task, methods[run], from_scratch=scratch)
    with ExitStack() as stack:
        folders = {
            run: stack.enter_context(replacing(paths.FINETUNED / task / run)) for run in plan.runs
        }
        weights = {run: folder / "weights" for run, folder in folders.items()}
        for folder in weights.values():
            folder.mkdir(parents=True)
        trials = run_trials(plan, task, groups, weights)
        # Read after the trials: what this process holds counts towards the memory of trials.
        texts = _texts(plan, task, methods)
        for run, folder in folders.items():
            of_run = [trial for trial in trials if trial.key.run == run]
            inputs, estimates = zip(*(t for key, t in texts.items() if key.run == run), strict=True)
            predictions = chain(*(trial.predictions for trial in of_run))
            validation = chain(*(trial.validation for trial in of_run))
            for name, kind, rows in (
                ("skipped.csv", records.SkippedMethod, skipped[run]),
                ("trials.csv", records.TrialRecord, [trial.record for trial in of_run]),
                ("history.csv", records.EpochRecord, chain(*(trial.epochs for trial in of_run))),
                ("inputs.csv", records.InputRecord, chain(*inputs)),
                ("estimates.csv", EstimateRecord, chain(*estimates)),
                ("predictions.csv.gz", records.PredictionRecord, predictions),
                ("validation.csv.gz", records.ValidationRecord, validation),
            ):
                records.write(folder / name, kind, rows)
            costs = paths.TIMINGS / "finetune" / task / f"{run}.csv"
            records.write(costs, records.CostRecord, [trial.cost for trial in of_run])
            for method in methods[run]:
                first = next(t.record for t in of_run if t.key.method == method)
                print(f"{run} on {task}: {method} trained {first.num_trained_params:,} weights")
    return f"{len(trials):,} trials of {len({trial.key.run for trial in trials})} runs"


def skipped_methods(plan: FinetunePlan, run: str, task: str) -> list[records.SkippedMethod]:
    """Returns the methods that are incompatible with the run or the task, and prints them."""
    checkpoint = RunKey(run, plan.runs[run].seeds[0])  # the model is the same with every seed
    setup = TrialSetup(checkpoint, task, max_tokens=plan.finetune.max_tokens)
    backbone = setup.outline()
    skipped = [
        records.SkippedMethod(run=run, method=method, reason=reason)
        for method in plan.finetune.methods
        if (reason := incompatibility_of(plan.finetune, setup, backbone, method))
    ]
    for row in skipped:
        print(f"{run} on {task} without {row.method}: {row.reason}")
    return skipped


def _texts(
    plan: FinetunePlan, task: str, methods: Mapping[str, Sequence[str]]
) -> dict[RunKey, Texts]:
    """Returns, for each checkpoint, how much of the task's texts it reads, and how well its states
    predict labels. All seeds of a public checkpoint that is used as published have the same
    weights, so its estimates are computed once."""
    jobs = list[list[RunKey]]()
    for run, settings in plan.runs.items():
        keys = [RunKey(run, seed) for seed in settings.seeds]
        jobs += [keys] if settings.as_published else [[key] for key in keys]
    done = workers.each(
        partial(_read_texts, plan, task, methods),
        jobs,
        at_once=side_by_side(plan.compute),
        late_imports=("sklearn.covariance",),  # for estimates
    )
    texts = dict[RunKey, Texts]()
    for _, result in done:
        if isinstance(result, ValueError):
            raise result
        texts |= result
    return {key: texts[key] for keys in jobs for key in keys}


def _read_texts(
    plan: FinetunePlan, task: str, methods: Mapping[str, Sequence[str]], keys: Sequence[RunKey]
) -> dict[RunKey, Texts]:
    """Returns the ``Texts`` of checkpoints with equal weights."""
    finetune, compatible = plan.finetune, methods[keys[0].run]
    estimates = estimated(finetune, plan.compute, keys[0], task) if compatible else []
    return {
        key: (
            input_records(finetune, key, task, compatible),
            [replace(record, **key._asdict()) for record in estimates],
        )
        for key in keys
    }


if __name__ == "__main__":
    run_stage(main, FinetunePlan, "task")
