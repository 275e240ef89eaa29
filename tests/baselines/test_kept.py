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


KEY = TrialKey("tfidf", 7, "type", CLASSICAL, "4", 2)


@pytest.mark.parametrize(("run", "task"), [("majority", "type"), ("tfidf", "type"), ("crf", "tag")])
def test_refit_predicts_the_test_rows_as_the_stage_did(run: str, task: str) -> None:
    rows = read_jsonl(paths.examples(task) / "test.jsonl")
    written = read(paths.BASELINES / task / "predictions.csv.gz", PredictionRecord)
    trials = {row.key for row in written if row.model == run}
    assert len(trials) == 7
    for key in trials:
        baseline, _ = _kept.refit(_kept.path_of(key), paths.examples(task))
        of_trial = [row.prediction for row in written if row.key == key]
        assert baseline.predict(rows) == of_trial


@pytest.mark.parametrize(
    ("changed", "fault"),
    [("rows", "type/examples has changed since"), ("code", "the baseline answers differently")],
)
def test_refit_refuses_other_rows_and_other_answers(changed, fault, monkeypatch) -> None:
    """Other code of the baseline or another version of scikit-learn changes answers."""
    validation = paths.examples("type") / "validation.jsonl"
    if changed == "rows":
        write_jsonl(validation, read_jsonl(validation)[1:])
    else:
        answers = lambda self, rows: ["x"] * len(rows)  # noqa: E731
        monkeypatch.setattr("stages.baselines.tfidf.Tfidf.predict", answers)
    with pytest.raises(ValueError, match=rf"tfidf-4-7-2\.json: .*{fault}; run `dvc repro`"):
        _kept.refit(_kept.path_of(KEY), paths.examples("type"))


def test_save_keeps_settings_and_no_rows() -> None:
    about = json.loads(_kept.path_of(KEY).read_text())
    assert about["component"] == {"name": "tfidf"}
    assert all(isinstance(value, str | int | dict) for value in about.values())
