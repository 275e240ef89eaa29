"""Fine-tune every checkpoint on a task with each method, label budget and seed, and predict the
test inputs. Trials in the store are not computed again."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain

from stages.core import paths
from stages.core.artifacts import replacing
from stages.core.keys import CheckpointKey
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
    skipped = {model: skipped_methods(plan, model, task) for model in plan.models}
    methods, groups = dict[str, list[str]](), list[Group]()
    for model, settings in plan.models.items():
        left_out = {row.method for row in skipped[model]}
        methods[model] = [method for method in plan.finetune.methods if method not in left_out]
        scratch = settings.from_scratch
        for key in (CheckpointKey(model, seed) for seed in settings.seeds):
            groups += trial_groups(plan.finetune, key, task, methods[model], from_scratch=scratch)
    with ExitStack() as stack:
        folders = {
            model: stack.enter_context(replacing(paths.FINETUNED / task / model))
            for model in plan.models
        }
        weights = {model: folder / "weights" for model, folder in folders.items()}
        for folder in weights.values():
            folder.mkdir(parents=True)
        trials = run_trials(plan, task, groups, weights)
        # Read after the trials: what this process holds counts towards the memory of trials.
        keys = [
            CheckpointKey(model, seed)
            for model, settings in plan.models.items()
            for seed in settings.seeds
        ]
        texts = dict[CheckpointKey, Texts]()
        for key, result in workers.each(
            partial(_texts, plan, task, methods), keys, at_once=side_by_side(plan.compute)
        ):
            if isinstance(result, ValueError):
                raise result
            texts[key] = result
        for model, folder in folders.items():
            of_run = [trial for trial in trials if trial.key.model == model]
            seeds = {key.pretrain_seed: texts[key] for key in keys if key.model == model}
            inputs = [read for read, _ in seeds.values()]
            _, first = next(iter(seeds.values()))
            estimates = [
                own or [replace(row, pretrain_seed=seed) for row in first]
                for seed, (_, own) in seeds.items()
            ]
            predictions = chain(*(trial.predictions for trial in of_run))
            validation = chain(*(trial.validation for trial in of_run))
            for name, kind, rows in (
                ("skipped.csv", records.SkippedMethod, skipped[model]),
                ("trials.csv", records.TrialRecord, [trial.record for trial in of_run]),
                ("history.csv", records.EpochRecord, chain(*(trial.epochs for trial in of_run))),
                ("inputs.csv", records.InputRecord, chain(*inputs)),
                ("estimates.csv", EstimateRecord, chain(*estimates)),
                ("predictions.csv.gz", records.PredictionRecord, predictions),
                ("validation.csv.gz", records.ValidationRecord, validation),
            ):
                records.write(folder / name, kind, rows)
            costs = paths.TIMINGS / "finetune" / task / f"{model}.csv"
            records.write(costs, records.CostRecord, [trial.cost for trial in of_run])
            for method in methods[model]:
                first = next(t.record for t in of_run if t.key.method == method)
                print(f"{model} on {task}: {method} trained {first.num_trained_params:,} weights")
    return f"{len(trials):,} trials of {len({trial.key.model for trial in trials})} runs"


def skipped_methods(plan: FinetunePlan, model: str, task: str) -> list[records.SkippedMethod]:
    """Returns the methods that are incompatible with the model or the task, and prints them."""
    checkpoint = CheckpointKey(
        model, plan.models[model].seeds[0]
    )  # the model is the same with every seed
    setup = TrialSetup(checkpoint, task, max_tokens=plan.finetune.max_tokens)
    backbone = setup.outline()
    skipped = [
        records.SkippedMethod(model=model, method=method, reason=reason)
        for method in plan.finetune.methods
        if (reason := incompatibility_of(plan.finetune, setup, backbone, method))
    ]
    for row in skipped:
        print(f"{model} on {task} without {row.method}: {row.reason}")
    return skipped


def _texts(
    plan: FinetunePlan, task: str, methods: Mapping[str, Sequence[str]], checkpoint: CheckpointKey
) -> Texts:
    """Returns how much of the task's texts a checkpoint reads, and how well its states predict
    labels; nothing if no method is compatible. A model as published is the same with every seed, so
    that the first seed's estimates are those of all."""
    compatible = methods[checkpoint.model]
    if not compatible:
        return [], []
    inputs = input_records(plan.finetune, checkpoint, task, compatible)
    entry = plan.models[checkpoint.model]
    if entry.as_published and checkpoint.pretrain_seed != entry.seeds[0]:
        return inputs, []
    return inputs, estimated(plan.finetune, plan.compute, checkpoint, task)


if __name__ == "__main__":
    run_stage(main, FinetunePlan, "task")
