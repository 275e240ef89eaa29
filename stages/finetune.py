"""Fine-tune a run on a task: every method, label budget and seed, and predict the test inputs."""

from stages.core import paths
from stages.core.artifacts import replacing
from stages.core.params import Params, entry
from stages.core.process import run_stage
from stages.evaluation import records
from stages.training.device import resolve
from stages.trials.compatibility import incompatibility
from stages.trials.groups import run_groups, trial_groups
from stages.trials.inputs import input_records
from stages.trials.runner import method_of
from stages.trials.setup import TrialSetup
from stages.trials.text_bits import text_bits


def main(params: Params, run_key: str, task_key: str) -> None:
    entry(params.pretrain, run_key, where="pretrain")
    entry(params.tasks, task_key, where="tasks")
    place = f"{run_key} on {task_key}"
    skipped = skipped_methods(params, run_key, task_key)
    for each in skipped:
        print(f"{place} without {each.method}: {each.reason}")
    without = {each.method for each in skipped}
    methods = [key for key in params.finetune.methods if key not in without]
    groups = trial_groups(params, run_key, methods)
    with replacing(paths.FINETUNED / task_key / run_key) as folder:
        (folder / "weights").mkdir(parents=True)
        outcomes = run_groups(params, run_key, task_key, groups, folder / "weights")
        records.write(folder / "skipped.csv", records.SkippedMethod, skipped)
        records.write(folder / "trials.csv", records.TrialRecord, [o.trial for o in outcomes])
        epochs = [epoch for outcome in outcomes for epoch in outcome.epochs]
        records.write(folder / "history.csv", records.EpochRecord, epochs)
        inputs = input_records(params, run_key, task_key, methods)
        records.write(folder / "inputs.csv", records.InputRecord, inputs)
        bits = own_text_bits(params, run_key, task_key)
        records.write(folder / "text_bits.csv", records.TextBitsRecord, bits)
        predictions = [each for outcome in outcomes for each in outcome.predictions]
        records.write(folder / "predictions.csv.gz", records.PredictionRecord, predictions)
    for method in methods:
        trial = next(o.trial for o in outcomes if o.trial.method == method)
        print(f"{place}: {method} trained {trial.num_trained_params:,} weights")
    costs = paths.TIMINGS / "finetune" / task_key / f"{run_key}.csv"
    records.write(costs, records.CostRecord, [outcome.cost for outcome in outcomes])


def skipped_methods(params: Params, run_key: str, task_key: str) -> list[records.SkippedMethod]:
    """The methods that are incompatible with the run or the task: they have no trials."""
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


def own_text_bits(params: Params, run_key: str, task_key: str) -> list[records.TextBitsRecord]:
    """One record, or none if the run has no such number."""
    setup = TrialSetup(run_key, task_key, max_tokens=params.finetune.max_tokens)
    found = text_bits(setup, resolve(params.compute, threads=params.compute.threads))
    return [] if found is None else [found]


if __name__ == "__main__":
    run_stage(main, "run", "task", repeats=lambda raw, run, task: [raw["finetune"], raw["compute"]])
