"""The stage that fits the classical baselines."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from stages import fit_baseline
from stages.baselines._baseline import BASELINES, Baseline, Score
from stages.core import paths
from stages.core.artifacts import read_jsonl
from stages.core.keys import TrialKey
from stages.evaluation.records import CLASSICAL, PredictionRecord, TrialRecord, read
from stages.tasks._cells import Row
from stages.tasks._labelled_rows import labelled_rows
from stages.tasks._task import TASKS
from tests.labelled_words import (
    FINETUNE_SEEDS,
    FITTING,
    PRETRAIN_SEEDS,
    plan_of,
    write_tasks,
)

DRAWS = [*product(PRETRAIN_SEEDS, FINETUNE_SEEDS)]


@pytest.fixture(autouse=True)
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tasks()


def fitted(task: str, **changes: Any) -> list[PredictionRecord]:
    fit_baseline.main(plan_of(task, **changes), task)
    return read(paths.BASELINES / task / "predictions.csv.gz", PredictionRecord)


def trials(task: str) -> list[TrialKey]:
    return [trial.key for trial in read(paths.BASELINES / task / "trials.csv", TrialRecord)]


@pytest.mark.parametrize("task", FITTING)
def test_fit_baseline_predicts_every_test_row_once_for_each_draw(task: str) -> None:
    """If all rows are labelled, there is one draw."""
    predictions = fitted(task)
    draws = [("4", *draw) for draw in DRAWS] + [("all", *DRAWS[0])]
    assert trials(task) == [
        TrialKey(name, pretrain_seed, task, CLASSICAL, budget, finetune_seed)
        for name in FITTING[task]
        for budget, pretrain_seed, finetune_seed in draws
    ]
    assert [(row.key, row.id) for row in predictions] == [
        (trial, str(i)) for trial in trials(task) for i in range(8)
    ]


def test_fit_baseline_learns_from_the_rows_of_trials_with_the_same_seeds(
    monkeypatch: pytest.MonkeyPatch,
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
    for ids, key in zip(learnt, trials("type"), strict=True):
        seeds = {"pretrain_seed": key.pretrain_seed, "finetune_seed": key.finetune_seed}
        rows = labelled_rows(train, key.label_budget, kind, **seeds, task="type")
        assert ids == [row["id"] for row in rows]
    assert len({*map(tuple, learnt[:-1])}) > 3 and learnt[-1] == [row["id"] for row in train]


def test_fit_baseline_writes_probabilities_and_the_score_on_validation_rows() -> None:
    predictions = fitted("type")
    assert {row.probability for row in predictions if row.model == "majority"} == {None}
    probabilities = [row.probability for row in predictions if row.model == "tfidf"]
    assert all(p is not None and 0.5 <= p <= 1 for p in probabilities)
    for trial in read(paths.BASELINES / "type" / "trials.csv", TrialRecord):
        assert trial.validation_score is not None and 0 <= trial.validation_score <= 1
