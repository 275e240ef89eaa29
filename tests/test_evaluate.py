"""The stage that scores trials on the test set."""

import csv
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

from stages import evaluate
from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl, write_json, write_jsonl
from stages.core.keys import TrialKey
from stages.core.plans import EvaluationPlan
from stages.evaluation.calibration import ReliabilityRecord
from stages.evaluation.confusion import ConfusionRecord
from stages.evaluation.doubtful_labels import DoubtfulLabel
from stages.evaluation.near_duplicates import NearDuplicates
from stages.evaluation.records import (
    CLASSICAL,
    EpochRecord,
    InputRecord,
    PredictionRecord,
    ScoredTrial,
    SkippedMethod,
    TrialRecord,
    TrialRow,
    read,
    write,
)
from stages.evaluation.transferability import EstimateRecord

GOLD = ["B-X I-X O", "O B-Y", "O"]
BASELINE = ["B-X I-X O", "O O", "O"]
RUNS = RIGHT, WRONG = "encoder_mlm", "decoder_causal"
PLAN = EvaluationPlan(models=[*RUNS], code={})
FINETUNED, EVALUATED = Path("data/finetuned/tag"), Path("data/evaluated/tag")
# The columns of a trial besides its key: 10 for each number.
TRIAL: dict[str, Any] = {
    **{
        name: 10.0 if hint in (float, float | None) else 10
        for name, hint in get_type_hints(TrialRecord).items()
        if name not in get_type_hints(TrialRow)
    },
    **{"architecture": "encoder", "objective": "mlm", "corpus": "all"},
    **{"used_architecture": "encoder", "design": None, "C": None},
}
COUNTS = {"rows": 3, "rows_cut": 1, "tokens": 20, "tokens_cut": 2}
ESTIMATED = {"num_rows": 200, "num_states": 3000, "flops": 10**9, "reason": ""}


def key(run: str, seed: int = 1) -> TrialKey:
    method = "full" if run != "crf" else CLASSICAL
    return TrialKey(run, seed, "tag", method, "200", 1)


def table(name: str, run: str) -> list[Any]:
    """Returns the rows of one run in a table that is concatenated over the runs."""
    at, read_at = key(run).checkpoint._asdict(), "first subword of a word"
    return {
        "skipped.csv": [SkippedMethod(model=run, method="lora", reason="fits no LSTM")],
        "inputs.csv": [InputRecord(**at, split="test", read_at=read_at, **COUNTS)],
        "estimates.csv": [EstimateRecord(**at, estimate="logme", value=-0.5, **ESTIMATED)],
    }[name]


def write_trials(folder: Path, run: str, answers: Sequence[str]) -> None:
    """Writes a trial with its predictions in reverse order."""
    of_trial = key(run)._asdict()
    write(folder / "trials.csv", TrialRecord, [TrialRecord(**TRIAL, **of_trial)])
    rows = [
        PredictionRecord(**of_trial, id=f"id{i}", prediction=answer)
        for i, answer in reversed([*enumerate(answers)])
    ]
    write(folder / "predictions.csv.gz", PredictionRecord, rows)


def write_run(run: str, answers: Sequence[str]) -> None:
    folder = FINETUNED / run
    write_trials(folder, run, answers)
    epoch = EpochRecord(
        **key(run)._asdict(),
        lr=TRIAL["lr"],
        epoch=1,
        train_loss=1.5,
        validation_metric=0.5,
        validation_loss=1.2,
    )
    write(folder / "history.csv", EpochRecord, [epoch, replace(epoch, lr=0.1)])
    for name, record in evaluate.OF_EACH_MODEL.items():
        write(folder / name, record, table(name, run))


@pytest.fixture(autouse=True)
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs with one trial each, one with all answers right and one with all wrong, and one
    baseline."""
    monkeypatch.chdir(tmp_path)
    examples, tags = paths.examples("tag"), [gold.split() for gold in GOLD]
    examples.mkdir(parents=True, exist_ok=True)
    about = {"task": {"name": "tagging"}, "kind": "tagging", "labels": [], "split_seeds": []}
    about |= {"metric": "entity_f1", "other_metric": "word_accuracy"}
    write_json(examples / "task.json", about)
    words = [[f"word{j}" for j, _ in enumerate(row)] for row in tags]
    rows = [{"id": f"id{i}", "words": row} for i, row in enumerate(words)]
    write_jsonl(examples / "test.jsonl", rows)
    write_jsonl(examples / "train.jsonl", rows[:1])
    labels = [{"id": f"id{i}", "tags": row} for i, row in enumerate(tags)]
    write_jsonl(paths.test_labels("tag"), labels)
    write_run(RIGHT, GOLD)
    write_run(WRONG, ["O O O", "B-Y O", "B-X"])
    write_trials(paths.BASELINES / "tag", "crf", BASELINE)
    write(paths.BASELINES / "tag/doubtful_labels.csv", DoubtfulLabel, [])


def evaluated() -> list[ScoredTrial]:
    evaluate.main(PLAN, "tag")
    return read(EVALUATED / "trials.csv", ScoredTrial)


def test_evaluate_scores_predictions_whatever_their_order() -> None:
    """Scores are written to the last bit, and what was trained is copied."""
    trials = evaluated()
    assert [(trial.model, trial.value, trial.other_value) for trial in trials] == [
        (RIGHT, 1.0, 1.0),
        (WRONG, 0.0, pytest.approx(1 / 6)),
        ("crf", 2 / 3, pytest.approx(5 / 6)),
    ]
    assert {trial.metric for trial in trials} == {"entity_f1"}
    assert {name: value for name, value in asdict(trials[0]).items() if name in TRIAL} == TRIAL
    with (EVALUATED / "trials.csv").open(newline="") as file:
        assert [row["value"] for row in csv.DictReader(file)] == ["1.0", "0.0", repr(2 / 3)]


def test_evaluate_writes_the_score_of_each_row() -> None:
    """Scores are in the order of trials and of test rows."""
    values = [trial.value for trial in evaluated()]
    scores = np.load(EVALUATED / "row_scores.npy")
    assert scores.dtype == np.float32 and scores.shape == (3, 3)
    assert scores.mean(axis=1).tolist() == pytest.approx(values)
    assert scores[2, 1] < scores[2].min(initial=1, where=[True, False, True])  # B-Y is missing


def test_evaluate_concatenates_the_tables_of_the_runs() -> None:
    evaluated()
    for name, record in evaluate.OF_EACH_MODEL.items():
        assert read(EVALUATED / name, record) == [row for run in RUNS for row in table(name, run)]


def test_evaluate_counts_confused_words_of_every_run_and_baseline() -> None:
    evaluated()
    confusion = read(EVALUATED / "confusion.csv", ConfusionRecord)
    words = sum(len(tags.split()) for tags in GOLD)
    for run in (*RUNS, "crf"):
        of_model = [record for record in confusion if record.model == run]
        assert sum(record.number for record in of_model) == words * of_model[0].num_trials
        assert all(r.answer == r.prediction for r in of_model) == (run == RIGHT)


def test_evaluate_turns_probabilities_into_a_calibration_error() -> None:
    path = FINETUNED / WRONG / "predictions.csv.gz"
    sure = [replace(row, probability=0.75) for row in read(path, PredictionRecord)]
    write(path, PredictionRecord, sure)
    right, wrong, _ = evaluated()
    assert (wrong.accuracy, wrong.mean_probability, wrong.calibration_error) == (0, 0.75, 0.75)
    assert right.calibration_error is None
    (bin,) = read(EVALUATED / "reliability.csv", ReliabilityRecord)
    measured = (bin.model, bin.number, bin.mean_probability, bin.accuracy)
    assert measured == (WRONG, len(GOLD), 0.75, 0)


def test_evaluate_counts_near_duplicates_and_numbers_groups_of_test_rows() -> None:
    path = paths.examples("tag") / "test.jsonl"
    rows = read_jsonl(path)
    evaluated()  # train has the first test row, which has three words; the others have two and one
    near = NearDuplicates(**read_json(EVALUATED / "near_duplicates.json"))
    assert (near.number, near.num_test, near.similarity) == (1, 3, 1.0)
    assert np.load(EVALUATED / "row_groups.npy").size == 0
    groups = ["scipy", "numpy", "scipy"]
    write_jsonl(path, [row | {"group": group} for row, group in zip(rows, groups, strict=True)])
    evaluated()
    assert np.load(EVALUATED / "row_groups.npy").tolist() == [1, 0, 1]
