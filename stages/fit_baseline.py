"""Fit the classical baselines to a task: data/baselines/TASK.

Each baseline learns from as many labels as the fine-tuned runs and predicts the same test rows.
"""

from tqdm import tqdm

from stages.baselines._baseline import BASELINES, Score
from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl, replacing
from stages.core.params import Params, entry
from stages.core.process import run_stage
from stages.evaluation.records import CLASSICAL, BaselinePredictionRecord, TrialRecord, write
from stages.kinds._kind import KINDS, SPLITS, rows_in_budget


def main(params: Params, task: str) -> None:
    entry(params.tasks, task, where="tasks")
    examples = paths.examples(task)
    about = read_json(examples / "task.json")
    train, validation, test = (read_jsonl(examples / f"{split}.jsonl") for split in SPLITS)
    kind = KINDS[about["kind"]]
    trials: list[TrialRecord] = []
    predictions: list[BaselinePredictionRecord] = []
    cells = [(name, n) for name in params.baselines for n in params.finetune.label_budgets]
    for name, budget in tqdm(cells, desc=f"baselines on {task}", disable=None):
        component = params.baselines[name]
        baseline = BASELINES.build(component, where=f"baselines.{name}")
        if kind.name not in baseline.fits:
            continue
        rows = train[: rows_in_budget(budget, len(train), task=task)]
        baseline.fit(rows, validation, Score(kind, about["metric"]))
        trials.append(_trial(name, str(component["name"]), task, str(budget)))
        predictions += [
            BaselinePredictionRecord(
                run=name,
                method=CLASSICAL,
                label_budget=str(budget),
                finetune_seed=0,
                id=row["id"],
                prediction=predicted,
            )
            for row, predicted in zip(test, baseline.predict(test), strict=True)
        ]
    with replacing(paths.BASELINES / task) as folder:
        write(folder / "trials.csv", TrialRecord, trials)
        write(folder / "predictions.csv.gz", BaselinePredictionRecord, predictions)


def _trial(run: str, architecture: str, task: str, label_budget: str) -> TrialRecord:
    return TrialRecord(
        run=run,
        architecture=architecture,
        objective="none",
        method=CLASSICAL,
        task=task,
        corpus="none",
        pretrain_seed=0,
        finetune_seed=0,
        label_budget=label_budget,
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
    )


if __name__ == "__main__":
    run_stage(main, "task")
