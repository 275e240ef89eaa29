"""Score every trial of a task on its test set: data/evaluated/TASK.

No other stage reads the test labels.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from itertools import chain

import numpy as np
from tqdm import tqdm

from stages.core import paths
from stages.core.artifacts import Json, read_json, read_jsonl, replacing, write_json, write_jsonl
from stages.core.keys import CellKey, TrialKey
from stages.core.plans import EvaluationPlan
from stages.core.process import run_stage
from stages.evaluation.calibration import (
    CoverageRecord,
    ReliabilityRecord,
    calibration,
    coverage,
    rare_class,
    reliability,
)
from stages.evaluation.confusion import (
    ConfusionRecord,
    Pairs,
    examples,
    has_confusion,
    pairs,
    records,
    shown_trials,
)
from stages.evaluation.doubtful_labels import DoubtfulLabel
from stages.evaluation.metrics import score
from stages.evaluation.near_duplicates import near_duplicates
from stages.evaluation.records import (
    EpochRecord,
    InputRecord,
    PredictionRecord,
    ScoredTrial,
    SkippedMethod,
    TrialRecord,
    ValidationRecord,
    discard_unlisted,
    read,
    write,
)
from stages.evaluation.row_scores import row_scores
from stages.evaluation.transferability import EstimateRecord
from stages.tasks._cells import Row
from stages.tasks._labelled_rows import of_draw
from stages.tasks._task import TASKS

# Tables that every model has; their rows are concatenated over the models.
OF_EACH_MODEL: dict[str, type] = {
    "skipped.csv": SkippedMethod,
    "inputs.csv": InputRecord,
    "estimates.csv": EstimateRecord,
}


def main(plan: EvaluationPlan, task: str) -> str:
    about = read_json(paths.examples(task) / "task.json")
    rows = read_jsonl(paths.examples(task) / "test.jsonl")
    labels = read_jsonl(paths.test_labels(task))
    kind = TASKS[about["kind"]]
    every_answer = {row["id"]: kind.answer(row) for row in labels}

    @cache
    def gold_of(finetune_seed: int) -> dict[str, str]:
        """Returns the right answers of the test rows that trials of this seed predict."""
        return {row["id"]: every_answer[row["id"]] for row in of_draw(rows, finetune_seed)}

    discard_unlisted(paths.FINETUNED / task, plan.models)
    models = [paths.FINETUNED / task / name for name in plan.models]
    trials: list[ScoredTrial] = []
    by_row: list[np.ndarray] = []  # one for each trial
    predictions: dict[str, Mapping[str, str]] = {}  # by model: of the trial in the examples
    answered: list[tuple[CellKey, list[str], list[str], list[float | None]]] = []
    confused: list[tuple[CellKey, Pairs]] = []  # one for each trial, if rows have classes
    covered: list[CoverageRecord] = []
    for folder in tqdm([*models, paths.BASELINES / task], desc=f"evaluate {task}", disable=None):
        answers = defaultdict[TrialKey, dict[str, PredictionRecord]](dict)
        for row in read(folder / "predictions.csv.gz", PredictionRecord):
            answers[row.key][row.id] = row
        validation = defaultdict[TrialKey, list[ValidationRecord]](list)
        if (path := folder / "validation.csv.gz").exists():  # baselines have none
            for row in read(path, ValidationRecord):
                validation[row.key].append(row)
        unscored = read(folder / "trials.csv", TrialRecord)
        for name, trial in shown_trials(unscored).items():
            predictions[name] = {id: row.prediction for id, row in answers[trial.key].items()}
        for trial in unscored:
            key = trial.key
            gold = gold_of(key.finetune_seed)
            assert answers[key].keys() == gold.keys(), f"{folder}: one prediction per test row"
            of_trial = [answers[key][id] for id in gold]
            pair = list(gold.values()), [row.prediction for row in of_trial]
            given = [row.probability for row in of_trial]
            measured = calibration(*pair, given), rare_class(*pair, given, about["labels"])
            scored = ScoredTrial(
                **asdict(trial),
                metric=about["metric"],
                value=score(about["metric"], *pair),
                other_metric=about["other_metric"],
                other_value=score(about["other_metric"], *pair),
                **{name: value for part in measured if part for name, value in vars(part).items()},
            )
            answered.append((key.cell, *pair, given))
            at_temperature = [row.calibrated for row in of_trial]
            covered += coverage(
                key, trial.temperature, validation[key], *pair, given, at_temperature
            )
            trials.append(scored)
            # With several draws of the splits, no row scores are needed (``Sample.of_draws``).
            has_draws = bool(about["split_seeds"])
            by_row.append(np.empty(0) if has_draws else row_scores(about["metric"], *pair))
            if has_confusion(kind):
                confused.append(
                    (key.cell, pairs(kind, gold, dict(zip(gold, pair[1], strict=True))))
                )

    with replacing(paths.EVALUATED / task) as folder:
        write(folder / "trials.csv", ScoredTrial, trials)
        np.save(folder / "row_scores.npy", np.array(by_row, dtype=np.float32))
        np.save(folder / "row_groups.npy", _row_groups(rows, about))
        kept_curves = {(trial.key, trial.lr) for trial in trials}
        curves = [epoch for model in models for epoch in read(model / "history.csv", EpochRecord)]
        curves = [epoch for epoch in curves if (epoch.key, epoch.lr) in kept_curves]
        write(folder / "history.csv", EpochRecord, curves)
        for name, record in OF_EACH_MODEL.items():
            tables = (read(model / name, record) for model in models)
            write(folder / name, record, chain.from_iterable(tables))
        write_json(folder / "task.json", about)
        draws = about["split_seeds"] or [0]
        test = of_draw(rows, draws[0])  # if there are several draws, the first is shown
        shown = [] if kind.is_own_answer else examples(kind, test, gold_of(draws[0]), predictions)
        write_jsonl(folder / "examples.jsonl", shown)
        train = read_jsonl(paths.examples(task) / "train.jsonl")
        by_draw = (near_duplicates(of_draw(rows, s), of_draw(train, s), kind) for s in draws)
        most = max(by_draw, key=lambda of_one: of_one.share)
        write_json(folder / "near_duplicates.json", asdict(most))
        doubtful = read(paths.BASELINES / task / "doubtful_labels.csv", DoubtfulLabel)
        write(folder / "doubtful_labels.csv", DoubtfulLabel, doubtful)
        write(folder / "confusion.csv", ConfusionRecord, records(confused))
        write(folder / "reliability.csv", ReliabilityRecord, reliability(answered))
        write(folder / "coverage.csv", CoverageRecord, covered)
    return f"{len(trials):,} trials scored on {len(rows):,} rows by {about['metric']}"


def _row_groups(rows: Sequence[Row], about: Json) -> np.ndarray:
    """Returns the index of each test row's document, package or group; empty if the source gives
    none, or if each seed draws other test rows."""
    if about["split_seeds"] or not all("group" in row for row in rows):
        return np.empty(0, dtype=np.int64)
    return np.unique([str(row["group"]) for row in rows], return_inverse=True)[1]


if __name__ == "__main__":
    run_stage(main, EvaluationPlan, "task")
