"""The record of a trial of a baseline, from which the baseline is fitted again."""

import json
from pathlib import Path

import pytest

from stages.baselines import _kept
from stages.core import paths
from stages.core.artifacts import read_jsonl, write_jsonl
from stages.core.keys import TrialKey
from stages.evaluation.records import CLASSICAL, PredictionRecord, read
from tests.labelled_words import fit_baselines


@pytest.fixture(autouse=True)
def fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fit_baselines()


def key_of(run: str, task: str, *, budget: str = "4", seeds: tuple[int, int] = (7, 2)) -> TrialKey:
    return TrialKey(run, seeds[0], task, CLASSICAL, budget, seeds[1])


@pytest.mark.parametrize(
    ("run", "task"), [("majority", "type"), ("tfidf", "type"), ("window", "tag")]
)
def test_refit_predicts_the_test_rows_as_the_stage_did(run: str, task: str) -> None:
    rows = read_jsonl(paths.examples(task) / "test.jsonl")
    written = read(paths.BASELINES / task / "predictions.csv.gz", PredictionRecord)
    trials = {row.key for row in written if row.run == run}
    assert len(trials) == 7
    for key in trials:
        baseline, _ = _kept.refit(_kept.path_of(key), paths.examples(task))
        of_trial = [row.prediction for row in written if row.key == key]
        assert baseline.predict(rows) == of_trial


def test_refit_refuses_rows_that_have_changed() -> None:
    path = paths.examples("type") / "validation.jsonl"
    write_jsonl(path, read_jsonl(path)[1:])
    with pytest.raises(
        ValueError, match=r"data/tasks/type/examples has changed since; run `dvc repro`"
    ):
        _kept.refit(_kept.path_of(key_of("tfidf", "type")), paths.examples("type"))


def test_refit_refuses_a_baseline_that_answers_differently(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other code of the baseline or another version of scikit-learn may be the cause."""
    monkeypatch.setattr(
        "stages.baselines.majority.Majority.predict", lambda self, rows: ["x"] * len(rows)
    )
    with pytest.raises(
        ValueError, match=r"majority-4-7-2\.json: the baseline answers differently; run"
    ):
        _kept.refit(_kept.path_of(key_of("majority", "type")), paths.examples("type"))


def test_save_keeps_settings_and_no_rows() -> None:
    about = json.loads(_kept.path_of(key_of("tfidf", "type")).read_text())
    assert about["component"] == {"name": "tfidf"}
    assert all(isinstance(value, str | int | dict) for value in about.values())
