"""Fine-tune every checkpoint on a task with each method, label budget and seed, and predict the
test inputs.

Trials in the store are not computed again. With ``finetune.screen`` only some of the runs are
fine-tuned, chosen by an estimate.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from stages.core import paths
from stages.core.artifacts import remove, replacing
from stages.core.keys import RunKey
from stages.core.plans import FinetunePlan
from stages.core.process import run_stage
from stages.evaluation import records
from stages.evaluation.estimates import EstimateCostRecord, EstimateRecord
from stages.evaluation.screening import screened_out
from stages.training.device import resolve, side_by_side
from stages.trials import store, workers
from stages.trials.estimates import Estimated, estimated
from stages.trials.groups import UNFINISHED, incompatibility_of, run_trials, trial_groups
from stages.trials.inputs import input_records
from stages.trials.outcome import Outcome
from stages.trials.setup import TrialSetup
from stages.trials.text_bits import text_bits


def main(plan: FinetunePlan, task: str) -> str:
    """Writes the results of all trials of the task.

    Raises ValueError if trials failed. The other trials are then in the store.
    """
    checkpoints = [RunKey(run, seed) for run in plan.runs for seed in plan.runs[run].seeds]
    skipped = {run: skipped_methods(plan, run, task) for run in plan.runs}
    methods = {run: _without(plan.finetune.methods, skipped[run]) for run in plan.runs}
    readings = [
        _Reading(plan, weights, task, methods[weights[0].run])
        for weights in _of_equal_weights(plan, checkpoints)
    ]
    # Without a screen, texts are read after the trials. If this process had read them earlier, they
    # would count towards the memory of the trials.
    texts = _texts_read(plan, readings) if plan.finetune.screen else {}
    left_out = _left_out(plan, task, texts)
    groups = {
        key: trial_groups(
            plan.finetune,
            key,
            task,
            () if key.run in left_out else methods[key.run],
            from_scratch=plan.runs[key.run].from_scratch,
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
        remove(UNFINISHED / task)  # left by interrupted trials that params.yaml no longer lists
        texts = texts or _texts_read(plan, readings)
        for run, folder in folders.items():
            of_run = [key for key in checkpoints if key.run == run]
            trials = [outcome for key in of_run for outcome in outcomes[key]]
            _write(folder, skipped[run], trials, [texts[key] for key in of_run])
            _print_trained_weights(run, task, trials)
            costs = paths.TIMINGS / "finetune" / task / f"{run}.csv"
            records.write(costs, records.CostRecord, [outcome.cost for outcome in trials])
    durations = [
        EstimateCostRecord(**key._asdict(), wall_time_s=texts[key].estimated.wall_time_s)
        for key in checkpoints
    ]
    records.write(paths.TIMINGS / "estimates" / f"{task}.csv", EstimateCostRecord, durations)
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


def _without(methods: Iterable[str], skipped: Iterable[records.SkippedMethod]) -> list[str]:
    left_out = {row.method for row in skipped}
    return [method for method in methods if method not in left_out]


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
    """Measurements of a checkpoint on a task's texts: how much of them it reads, how well it
    predicts them, and how well its states predict their labels."""

    inputs: list[records.InputRecord]
    bits: list[records.TextBitsRecord]
    estimated: Estimated


def _texts(reading: _Reading) -> list[_Texts]:
    """Returns the ``_Texts`` of each checkpoint. Bits and estimates are computed once, since the
    weights are equal."""
    plan, (first, *_), task = reading.plan, reading.checkpoints, reading.task
    finetune, compute = plan.finetune, plan.compute
    setup = TrialSetup(first, task, max_tokens=finetune.max_tokens)
    device = resolve(compute, threads=compute.trial_threads)
    bits = text_bits(setup, plan.runs[first.run], device)
    estimates = Estimated([], 0.0)
    if reading.methods:
        estimates = estimated(finetune, compute, first, task)
    return [
        _Texts(
            input_records(finetune, key, task, reading.methods),
            [] if bits is None else [replace(bits, **key._asdict())],
            replace(
                estimates,
                records=[replace(record, **key._asdict()) for record in estimates.records],
            ),
        )
        for key in reading.checkpoints
    ]


def _texts_read(plan: FinetunePlan, readings: Sequence[_Reading]) -> dict[RunKey, _Texts]:
    """Returns the ``_Texts`` of the checkpoints of all ``readings``."""
    store.check_writable()
    texts = dict[RunKey, _Texts]()
    at_once, late_imports = side_by_side(plan.compute), ("sklearn.covariance",)  # for estimates
    done = workers.each(_texts, readings, at_once=at_once, late_imports=late_imports)
    for reading, result in done:
        if isinstance(result, ValueError):
            raise result
        texts |= zip(reading.checkpoints, result, strict=True)
    return texts


def _left_out(plan: FinetunePlan, task: str, texts: Mapping[RunKey, _Texts]) -> set[str]:
    """Returns the runs that are screened out, and prints them."""
    estimates = [record for read in texts.values() for record in read.estimated.records]
    screened = screened_out(plan.finetune.screen, plan.runs, estimates)
    for run in screened:
        print(f"{task}: screened out by {run.by} ({run.value:.3f}): {run.run}")
    return {run.run for run in screened}


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
    bits = [row for read in texts for row in read.bits]
    records.write(folder / "text_bits.csv", records.TextBitsRecord, bits)
    estimates = [row for read in texts for row in read.estimated.records]
    records.write(folder / "estimates.csv", EstimateRecord, estimates)
    predictions = [row for outcome in outcomes for row in outcome.predictions]
    records.write(folder / "predictions.csv.gz", records.PredictionRecord, predictions)
    validation = [row for outcome in outcomes for row in outcome.validation]
    records.write(folder / "validation.csv.gz", records.ValidationRecord, validation)
    tries = [row for outcome in outcomes for row in outcome.tries]
    records.write(folder / "tries.csv", records.TryRecord, tries)
    lost = [row for outcome in outcomes for row in outcome.lost_predictions]
    records.write(folder / "lost_predictions.csv.gz", records.LostPredictionRecord, lost)


def _print_trained_weights(run: str, task: str, outcomes: Sequence[Outcome]) -> None:
    first = {outcome.trial.method: outcome.trial for outcome in reversed(outcomes)}
    for method, trial in first.items():
        print(f"{run} on {task}: {method} trained {trial.num_trained_params:,} weights")


if __name__ == "__main__":
    run_stage(main, FinetunePlan, "task")
