"""Fine-tune every checkpoint on a task with each method, label budget and seed, and predict the
test inputs. Trials in the store are not computed again."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from stages.core import paths
from stages.core.artifacts import replacing
from stages.core.keys import RunKey
from stages.core.plans import FinetunePlan
from stages.core.process import run_stage
from stages.evaluation import records
from stages.evaluation.transferability import EstimateRecord
from stages.training.device import side_by_side
from stages.trials import workers
from stages.trials.estimates import estimated
from stages.trials.groups import incompatibility_of, run_trials, trial_groups
from stages.trials.inputs import input_records
from stages.trials.outcome import Outcome
from stages.trials.setup import TrialSetup


def main(plan: FinetunePlan, task: str) -> str:
    """Writes the results of all trials of the task.

    Raises ValueError if trials failed. The other trials are then in the store.
    """
    checkpoints = [RunKey(run, seed) for run in plan.runs for seed in plan.runs[run].seeds]
    skipped = {run: skipped_methods(plan, run, task) for run in plan.runs}
    left_out = {run: {row.method for row in skipped[run]} for run in plan.runs}
    methods = {run: [m for m in plan.finetune.methods if m not in left_out[run]] for run in skipped}
    groups = {
        key: trial_groups(
            plan.finetune, key, task, methods[key.run], from_scratch=plan.runs[key.run].from_scratch
        )
        for key in checkpoints
    }
    with ExitStack() as stack:
        folders = {
            run: stack.enter_context(replacing(paths.FINETUNED / task / run)) for run in plan.runs
        }
        weights = {run: folder / "weights" for run, folder in folders.items()}
        for folder in weights.values():
            folder.mkdir(parents=True)
        outcomes = run_trials(plan, task, groups, weights)
        readings = [
            _Reading(plan, some, task, methods[some[0].run])
            for some in _of_equal_weights(plan, checkpoints)
        ]
        # Read after the trials: what this process holds counts towards the memory of trials.
        texts = _texts_read(plan, readings)
        for run, folder in folders.items():
            of_run = [key for key in checkpoints if key.run == run]
            trials = [outcome for key in of_run for outcome in outcomes[key]]
            _write(folder, skipped[run], trials, [texts[key] for key in of_run])
            _print_trained_weights(run, task, trials)
            costs = paths.TIMINGS / "finetune" / task / f"{run}.csv"
            records.write(costs, records.CostRecord, [outcome.cost for outcome in trials])
    num_trials = {key: len(trials) for key, trials in outcomes.items() if trials}
    return f"{sum(num_trials.values()):,} trials of {len({key.run for key in num_trials})} runs"


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


def _of_equal_weights(plan: FinetunePlan, checkpoints: Iterable[RunKey]) -> list[list[RunKey]]:
    """Groups checkpoints with equal weights: all seeds of a public checkpoint that is used as
    published form one group. Every other checkpoint is a group of its own."""
    groups = dict[object, list[RunKey]]()
    for key in checkpoints:
        groups.setdefault(key.run if plan.runs[key.run].as_published else key, []).append(key)
    return [*groups.values()]


@dataclass(frozen=True)
class _Reading:
    """Checkpoints with equal weights, and the task whose texts they read."""

    plan: FinetunePlan
    checkpoints: list[RunKey]
    task: str
    methods: list[str]  # compatible with the checkpoints and the task


@dataclass(frozen=True)
class _Texts:
    """How much of a task's texts a checkpoint reads, and how well its states predict labels."""

    inputs: list[records.InputRecord]
    estimates: list[EstimateRecord]


def _texts(reading: _Reading) -> list[_Texts]:
    """Returns the ``_Texts`` of each checkpoint. Estimates are computed once, since the weights are
    equal."""
    finetune, task = reading.plan.finetune, reading.task
    estimates = list[EstimateRecord]()
    if reading.methods:
        estimates = estimated(finetune, reading.plan.compute, reading.checkpoints[0], task)
    return [
        _Texts(
            input_records(finetune, key, task, reading.methods),
            [replace(record, **key._asdict()) for record in estimates],
        )
        for key in reading.checkpoints
    ]


def _texts_read(plan: FinetunePlan, readings: Sequence[_Reading]) -> dict[RunKey, _Texts]:
    """Returns the ``_Texts`` of the checkpoints of all ``readings``."""
    texts = dict[RunKey, _Texts]()
    at_once, late_imports = side_by_side(plan.compute), ("sklearn.covariance",)  # for estimates
    done = workers.each(_texts, readings, at_once=at_once, late_imports=late_imports)
    for reading, result in done:
        if isinstance(result, ValueError):
            raise result
        texts |= zip(reading.checkpoints, result, strict=True)
    return texts


def _write(
    folder: Path,
    skipped: Sequence[records.SkippedMethod],
    outcomes: Sequence[Outcome],
    texts: Sequence[_Texts],
) -> None:
    """Writes the tables of a run, with the rows of all its seeds."""
    records.write(folder / "skipped.csv", records.SkippedMethod, skipped)
    records.write(folder / "trials.csv", records.TrialRecord, [o.trial for o in outcomes])
    epochs = [epoch for outcome in outcomes for epoch in outcome.epochs]
    records.write(folder / "history.csv", records.EpochRecord, epochs)
    inputs = [row for read in texts for row in read.inputs]
    records.write(folder / "inputs.csv", records.InputRecord, inputs)
    estimates = [row for read in texts for row in read.estimates]
    records.write(folder / "estimates.csv", EstimateRecord, estimates)
    predictions = [row for outcome in outcomes for row in outcome.predictions]
    records.write(folder / "predictions.csv.gz", records.PredictionRecord, predictions)
    validation = [row for outcome in outcomes for row in outcome.validation]
    records.write(folder / "validation.csv.gz", records.ValidationRecord, validation)


def _print_trained_weights(run: str, task: str, outcomes: Sequence[Outcome]) -> None:
    first = {outcome.trial.method: outcome.trial for outcome in reversed(outcomes)}
    for method, trial in first.items():
        print(f"{run} on {task}: {method} trained {trial.num_trained_params:,} weights")


if __name__ == "__main__":
    run_stage(main, FinetunePlan, "task")
