"""The stage that fits the classical baselines."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from stages import fit_baseline
from stages.baselines._baseline import BASELINES, Baseline, Score
from stages.core import paths
from stages.core.artifacts import read_jsonl, write_json, write_jsonl
from stages.core.keys import TrialKey
from stages.core.plans import BaselinePlan
from stages.evaluation.records import CLASSICAL, PredictionRecord, TrialRecord, read
from stages.kinds._cells import Row
from stages.kinds._kind import KINDS, labelled_rows

PLAN = BaselinePlan(
    baselines={name: {"name": name} for name in ("majority", "tfidf", "window")},
    label_budgets=[4, "all"],
    pretrain_seeds=[1, 7],
    finetune_seeds=[1, 2, 3],
    code={},
)
DRAWS = [*product(PLAN.pretrain_seeds, PLAN.finetune_seeds)]
WORDS = {"fruit": ["apple", "pear"], "tool": ["hammer", "saw"]}


@pytest.fixture(autouse=True)
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """24 classified sentences and as many tagged ones."""
    monkeypatch.chdir(tmp_path)
    for task, kind, metric in (
        ("type", "classification", "macro_f1"),
        ("tag", "tagging", "entity_f1"),
    ):
        examples = paths.examples(task)
        examples.mkdir(parents=True)
        for split, number in (("train", 12), ("validation", 4), ("test", 8)):
            rows = [_row(kind, i, labelled=split != "test") for i in range(number)]
            write_jsonl(examples / f"{split}.jsonl", rows)
        write_json(examples / "task.json", {"kind": kind, "metric": metric})


def _row(kind: str, i: int, *, labelled: bool) -> dict[str, Any]:
    label = list(WORDS)[i % 2]
    word = WORDS[label][i // 2 % 2]
    if kind == "classification":
        row = {"id": str(i), "text": f"a {word}", "label": label}
    else:
        tags = ["O", "B-TOOL" if label == "tool" else "O"]
        row = {"id": str(i), "words": ["a", word], "tags": tags}
    return row if labelled else {k: v for k, v in row.items() if k not in ("label", "tags")}


def fitted(task: str, **changes: Any) -> list[PredictionRecord]:
    fit_baseline.main(PLAN.model_copy(update=changes), task)
    return read(paths.BASELINES / task / "predictions.csv.gz", PredictionRecord)


def trials(task: str) -> list[TrialKey]:
    return [trial.key for trial in read(paths.BASELINES / task / "trials.csv", TrialRecord)]


@pytest.mark.parametrize(
    ("task", "fitting"), [("type", ["majority", "tfidf"]), ("tag", ["majority", "window"])]
)
def test_fit_baseline_predicts_every_test_row_once_for_each_draw(
    task: str, fitting: list[str]
) -> None:
    """If all rows are labelled, there is one draw."""
    predictions = fitted(task)
    draws = [("4", *draw) for draw in DRAWS] + [("all", *DRAWS[0])]
    assert trials(task) == [
        TrialKey(name, pretrain_seed, task, CLASSICAL, budget, finetune_seed)
        for name in fitting
        for budget, pretrain_seed, finetune_seed in draws
    ]
    assert [(row.key, row.id) for row in predictions] == [
        (trial, str(i)) for trial in trials(task) for i in range(8)
    ]


def test_fit_baseline_predicts_what_it_learnt() -> None:
    labels = [
        row.prediction for row in fitted("type") if (row.run, row.label_budget) == ("tfidf", "all")
    ]
    assert labels == [list(WORDS)[i % 2] for i in range(8)]
    tags = {row.prediction for row in fitted("tag") if row.run == "window"}
    assert tags == {"O O", "O B-TOOL"}


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
    train = read_jsonl(paths.examples("type") / "train.jsonl")
    rows = [
        labelled_rows(
            train,
            key.label_budget,
            KINDS["classification"],
            pretrain_seed=key.pretrain_seed,
            finetune_seed=key.finetune_seed,
            task="type",
        )
        for key in trials("type")
    ]
    assert learnt == [[row["id"] for row in of_trial] for of_trial in rows]
    assert len({*map(tuple, learnt[:-1])}) > 3 and learnt[-1] == [row["id"] for row in train]


def test_fit_baseline_writes_the_same_bytes_twice() -> None:
    fitted("type")
    files = sorted((paths.BASELINES / "type").iterdir())
    before = [path.read_bytes() for path in files]
    fitted("type")
    assert [path.read_bytes() for path in files] == before


def test_fit_baseline_refuses_more_labels_than_there_are() -> None:
    fault = r"finetune\.label_budgets: 13 labels, .*tasks\.type has 12"
    with pytest.raises(ValueError, match=fault):
        fitted("type", label_budgets=[13])
    assert not paths.BASELINES.exists()


@pytest.mark.parametrize("without", ["support_vector_machines", "logistic_regressions"])
def test_fit_baseline_writes_the_probability_that_a_model_gives(
    without: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logistic regression gives one, a support vector machine and the majority give none."""
    monkeypatch.setattr(f"stages.baselines.tfidf.{without}", lambda C: [])
    predictions = fitted("type")
    assert {row.probability for row in predictions if row.run == "majority"} == {None}
    probabilities = [row.probability for row in predictions if row.run == "tfidf"]
    if without == "logistic_regressions":
        assert {*probabilities} == {None}
    else:
        assert all(p is not None and 0.5 <= p <= 1 for p in probabilities)
