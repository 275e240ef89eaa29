"""Fit the classical baselines to a task: data/baselines/TASK.

A baseline learns from the same labelled rows as the trials of a fine-tuned run, which are another
sample for each pair of pretraining and fine-tuning seed. It predicts the same test rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from tqdm import tqdm

from stages.baselines._baseline import BASELINES, Score
from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl, replacing
from stages.core.params import Params, entry
from stages.core.process import run_stage
from stages.evaluation.records import CLASSICAL, BaselinePredictionRecord, TrialRecord, write
from stages.kinds._kind import KINDS, SPLITS, distinct_draws, labelled_rows


@dataclass(frozen=True)
class Fit:
    """One trial of a baseline."""

    name: str
    label_budget: int | str
    pretrain_seed: int  # together with finetune_seed it only draws the labelled rows
    finetune_seed: int


def main(params: Params, task: str) -> None:
    """Writes ``trials.csv`` and ``predictions.csv.gz``. If a label budget is all rows of train,
    seeds have no effect, and there is one trial."""
    entry(params.tasks, task, where="tasks")
    examples = paths.examples(task)
    about = read_json(examples / "task.json")
    train, validation, test = (read_jsonl(examples / f"{split}.jsonl") for split in SPLITS)
    kind = KINDS[about["kind"]]
    trials: list[TrialRecord] = []
    predictions: list[BaselinePredictionRecord] = []
    fits = [*_fits(params, kind.name, len(train), task)]
    for fit in tqdm(fits, desc=f"baselines on {task}", disable=None):
        component = params.baselines[fit.name]
        baseline = BASELINES.build(component, where=f"baselines.{fit.name}")
        rows = labelled_rows(
            train,
            fit.label_budget,
            kind,
            pretrain_seed=fit.pretrain_seed,
            finetune_seed=fit.finetune_seed,
            task=task,
        )
        baseline.fit(rows, validation, Score(kind, about["metric"]))
        trials.append(_trial(fit, str(component["name"]), task, num_tries=baseline.num_tries))
        predictions += [
            BaselinePredictionRecord(
                run=fit.name,
                method=CLASSICAL,
                label_budget=str(fit.label_budget),
                finetune_seed=fit.finetune_seed,
                id=row["id"],
                prediction=predicted,
                pretrain_seed=fit.pretrain_seed,
                probability=None if probability is None else round(probability, 6),
            )
            for row, predicted, probability in zip(
                test, baseline.predict(test), baseline.probabilities(test), strict=True
            )
        ]
    with replacing(paths.BASELINES / task) as folder:
        write(folder / "trials.csv", TrialRecord, trials)
        write(folder / "predictions.csv.gz", BaselinePredictionRecord, predictions)


def _fits(params: Params, kind: str, num_train: int, task: str) -> Iterator[Fit]:
    """Yields all trials of a task, in the order of params.yaml."""
    seeds = read_json(paths.SEEDS)["pretrain_seeds"]
    for name, budget in product(params.baselines, params.finetune.label_budgets):
        baseline = BASELINES.build(params.baselines[name], where=f"baselines.{name}")
        if kind not in baseline.fits:
            continue
        for pair in distinct_draws(
            budget,
            num_train,
            pretrain_seeds=seeds,
            finetune_seeds=params.finetune.seeds,
            task=task,
        ):
            yield Fit(name, budget, *pair)


def _trial(fit: Fit, architecture: str, task: str, *, num_tries: int) -> TrialRecord:
    return TrialRecord(
        run=fit.name,
        architecture=architecture,
        objective="none",
        method=CLASSICAL,
        task=task,
        corpus="none",
        pretrain_seed=fit.pretrain_seed,
        finetune_seed=fit.finetune_seed,
        label_budget=str(fit.label_budget),
        num_params=0,
        num_trained_params=0,
        pretrain_tokens=0,
        pretrain_flops=0,
        lineage_tokens=0,
        lineage_flops=0,
        finetune_flops=0,
        lr=0.0,
        d_model=0,
        num_layers=0,
        best_epoch=0,
        weights_bytes=None,
        num_pretrained_params=0,
        used_architecture=architecture,
        design=None,
        lineage_bytes=0,
        num_epochs=0,
        num_steps=0,
        last_train_loss=None,
        best_is_last=0,
        chosen_in_warmup=0,
        still_improving=0,
        converged=None,
        C=None,
        num_tries=num_tries,
        at_edge=None,
    )


if __name__ == "__main__":
    run_stage(main, "task")
