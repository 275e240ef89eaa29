"""The stages that fit the classical baselines and that score all trials on the test set."""

import csv
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

from stages import evaluate, fit_baseline
from stages.baselines._baseline import BASELINES, Baseline, Score
from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl, remove, write_json, write_jsonl
from stages.core.keys import TrialKey
from stages.core.plans import EvaluationPlan
from stages.evaluation.calibration import ReliabilityRecord
from stages.evaluation.confusion import ConfusionRecord
from stages.evaluation.doubtful_labels import DoubtfulLabel
from stages.evaluation.near_duplicates import NearDuplicates
from stages.evaluation.records import (
    CLASSICAL,
    EpochRecord,
    PredictionRecord,
    ScoredTrial,
    SkippedMethod,
    TrialRecord,
    TrialRow,
    read,
    write,
)
from stages.tasks._cells import Row
from stages.tasks._labelled_rows import labelled_rows
from stages.tasks._task import SPLITS, TASKS
from tests.labelled_words import FINETUNE_SEEDS, FITTING, PRETRAIN_SEEDS, plan_of, write_tasks
from tests.small_study import write_task

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


def key(run: str) -> TrialKey:
    return TrialKey(run, 1, "tag", "full" if run != "crf" else CLASSICAL, "200", 1)


def write_trials(folder: Path, run: str, answers: Sequence[str]) -> None:
    """Writes a trial with its predictions in reverse order."""
    of_trial = key(run)._asdict()
    write(folder / "trials.csv", TrialRecord, [TrialRecord(**TRIAL, **of_trial)])
    rows = [
        PredictionRecord(**of_trial, id=f"row {i + 1}", prediction=answer)
        for i, answer in reversed([*enumerate(answers)])
    ]
    write(folder / "predictions.csv.gz", PredictionRecord, rows)


def write_run(run: str, answers: Sequence[str]) -> None:
    folder = FINETUNED / run
    write_trials(folder, run, answers)
    measured = {"train_loss": 1.5, "validation_metric": 0.5, "validation_loss": 1.2}
    epoch = EpochRecord(**key(run)._asdict(), lr=TRIAL["lr"], epoch=1, **measured)
    write(folder / "history.csv", EpochRecord, [epoch, replace(epoch, lr=0.1)])
    for name, record in evaluate.OF_EACH_MODEL.items():
        skipped = [SkippedMethod(model=run, method="lora", reason="fits no LSTM")]
        write(folder / name, record, skipped if record is SkippedMethod else [])


@pytest.fixture(autouse=True)
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs with one trial each, one with all answers right and one with all wrong, and one
    baseline."""
    monkeypatch.chdir(tmp_path)
    tags = [gold.split() for gold in GOLD]
    rows = [{"words": [f"word{j}" for j, _ in enumerate(row)], "tags": row} for row in tags]
    write_task("tag", [rows[0], *rows], {"name": "tagging"}, train=1, validation=0, test=3)
    write_run(RIGHT, GOLD)
    write_run(WRONG, ["O O O", "B-Y O", "B-X"])
    write_trials(paths.BASELINES / "tag", "crf", BASELINE)
    write(paths.BASELINES / "tag/doubtful_labels.csv", DoubtfulLabel, [])


def evaluated() -> list[ScoredTrial]:
    evaluate.main(PLAN, "tag")
    return read(EVALUATED / "trials.csv", ScoredTrial)


def test_evaluate_scores_predictions_whatever_their_order() -> None:
    """Scores are written to the last bit, and what was trained is copied. The score of each row is
    in the order of trials and of test rows. Curves are those of the rates that trials kept."""
    write_run("no_longer_listed", GOLD)
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
    scores = np.load(EVALUATED / "row_scores.npy")
    assert scores.dtype == np.float32 and scores.shape == (3, 3)
    assert scores.mean(axis=1).tolist() == pytest.approx([trial.value for trial in trials])
    assert scores[2, 1] < scores[2].min(initial=1, where=[True, False, True])  # B-Y is missing
    curves = read(EVALUATED / "history.csv", EpochRecord)
    assert [(epoch.model, epoch.lr) for epoch in curves] == [(run, TRIAL["lr"]) for run in RUNS]
    assert [row.model for row in read(EVALUATED / "skipped.csv", SkippedMethod)] == [*RUNS]
    assert not (FINETUNED / "no_longer_listed").exists()


def test_evaluate_shows_confused_words_and_examples_of_every_run_and_baseline() -> None:
    evaluated()
    confusion = read(EVALUATED / "confusion.csv", ConfusionRecord)
    words = sum(len(tags.split()) for tags in GOLD)
    for run in (*RUNS, "crf"):
        of_model = [record for record in confusion if record.model == run]
        assert sum(record.number for record in of_model) == words * of_model[0].num_trials
        assert all(r.answer == r.prediction for r in of_model) == (run == RIGHT)
    shown = read_jsonl(EVALUATED / "examples.jsonl")
    assert len(shown) == len(GOLD)
    voters = [name for vote in shown[0]["predictions"] for name in vote["models"]]
    assert sorted(voters) == sorted([*RUNS, "crf"])


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


def test_evaluate_scores_a_trial_on_the_test_rows_that_its_seed_draws() -> None:
    """Near-duplicates are of the draw with the largest share, examples of the first. Rows of
    several draws have no groups and no scores of their own."""
    folder, about = paths.examples("tag"), paths.examples("tag") / "task.json"
    write_json(about, read_json(about) | {"split_seeds": [1, 2]})
    for split, draws in (("test", ([1, 2], [1], [2])), ("train", ([2],))):
        rows = read_jsonl(folder / f"{split}.jsonl")
        drawn = [{**r, "draws": d, "group": "g"} for r, d in zip(rows, draws, strict=True)]
        write_jsonl(folder / f"{split}.jsonl", drawn)
    for path in [*FINETUNED.glob("*/predictions.csv.gz"), *paths.BASELINES.glob("*/*.csv.gz")]:
        kept = [row for row in read(path, PredictionRecord) if row.id != "row 3"]
        write(path, PredictionRecord, kept)
    assert [trial.value for trial in evaluated()] == [1.0, 0.0, 2 / 3]
    near = NearDuplicates(**read_json(EVALUATED / "near_duplicates.json"))
    assert (near.number, near.num_test) == (1, 2)
    assert len(read_jsonl(EVALUATED / "examples.jsonl")) == 2
    assert np.load(EVALUATED / "row_scores.npy").shape == (3, 0)
    assert np.load(EVALUATED / "row_groups.npy").size == 0
    write(path, PredictionRecord, [])
    with pytest.raises(AssertionError, match="one prediction per test row"):
        evaluated()


# Baselines

DRAWS = [*product(PRETRAIN_SEEDS, FINETUNE_SEEDS)]


def fitted(task: str, **changes: Any) -> list[PredictionRecord]:
    fit_baseline.main(plan_of(task, **changes), task)
    return read(paths.BASELINES / task / "predictions.csv.gz", PredictionRecord)


def baseline_trials(task: str) -> list[TrialRecord]:
    return read(paths.BASELINES / task / "trials.csv", TrialRecord)


@pytest.fixture
def labelled() -> None:
    remove(paths.TASKS)
    write_tasks()


@pytest.mark.parametrize("task", FITTING)
def test_fit_baseline_predicts_every_test_row_once_for_each_draw(task: str, labelled: None) -> None:
    """If all rows are labelled, there is one draw."""
    predictions, trials = fitted(task), baseline_trials(task)
    draws = [("4", *draw) for draw in DRAWS] + [("all", *DRAWS[0])]
    assert [trial.key for trial in trials] == [
        TrialKey(name, pretrain_seed, task, CLASSICAL, budget, finetune_seed)
        for name in FITTING[task]
        for budget, pretrain_seed, finetune_seed in draws
    ]
    assert [(row.key, row.id) for row in predictions] == [
        (trial.key, str(i)) for trial in trials for i in range(8)
    ]
    scores = [trial.validation_score for trial in trials]
    assert all(score is not None and 0 <= score <= 1 for score in scores)
    assert {row.probability for row in predictions if row.model in ("majority", "crf")} == {None}
    probabilities = [row.probability for row in predictions if row.model == "tfidf"]
    assert all(p is not None and 0.5 <= p <= 1 and p == round(p, 6) for p in probabilities)


def test_fit_baseline_answers_the_test_rows_that_each_seed_draws(labelled: None) -> None:
    folder, drawn = paths.examples("type"), dict[int, set[str]]()
    write_json(folder / "task.json", read_json(folder / "task.json") | {"split_seeds": [1, 2, 3]})
    for split in SPLITS:
        rows = read_jsonl(folder / f"{split}.jsonl")
        draws = [[seed for seed in FINETUNE_SEEDS if (i + seed) % 4] for i in range(len(rows))]
        rows = [row | {"draws": some} for row, some in zip(rows, draws, strict=True)]
        drawn = {s: {row["id"] for row in rows if s in row["draws"]} for s in FINETUNE_SEEDS}
        write_jsonl(folder / f"{split}.jsonl", rows)
    answered = defaultdict[int, set[str]](set)
    for row in fitted("type", label_budgets=["all"]):
        answered[row.finetune_seed].add(row.id)
    assert answered == drawn and len({*map(frozenset, drawn.values())}) == 3


def test_fit_baseline_learns_from_the_rows_of_trials_with_the_same_seeds(
    labelled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    learnt = list[list[str]]()

    class Recorder(Baseline):
        fits = ("classification",)

        def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
            learnt.append([row["id"] for row in train])

        def predict(self, rows: Sequence[Row]) -> list[str]:
            return ["fruit" for _ in rows]

    monkeypatch.setattr(BASELINES, "build", lambda component, where: Recorder())
    fitted("type", baselines={"own": {"name": "own"}})
    train, kind = read_jsonl(paths.examples("type") / "train.jsonl"), TASKS["classification"]
    for ids, trial in zip(learnt, baseline_trials("type"), strict=True):
        seeds = {"pretrain_seed": trial.pretrain_seed, "finetune_seed": trial.finetune_seed}
        rows = labelled_rows(train, trial.label_budget, kind, **seeds, task="type")
        assert ids == [row["id"] for row in rows]
        assert trial.validation_score == 1 / 3  # half of the rows are fruit
    assert len({*map(tuple, learnt[:-1])}) > 3 and learnt[-1] == [row["id"] for row in train]
