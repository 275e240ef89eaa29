"""A baseline predicts new text as it did the test rows."""

from pathlib import Path

import pytest

from stages.core import paths
from stages.core.artifacts import read_jsonl, write_jsonl
from stages.core.keys import TrialKey
from stages.evaluation.records import CLASSICAL, PredictionRecord, read
from tests.labelled_words import fit_baselines

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fit_baselines()


@pytest.mark.parametrize("seeds", [(), ("--pretrain-seed", "7", "--finetune-seed", "2")])
@pytest.mark.parametrize(("run", "task"), [("crf", "tag"), ("tfidf", "type"), ("majority", "tag")])
def test_predict_predicts_the_test_rows_as_the_stage_did(command, run, task, seeds) -> None:
    """The rows have another order; the first seeds are the default."""
    rows = read_jsonl(paths.examples(task) / "test.jsonl")
    write_jsonl(Path("new.jsonl"), reversed(rows))
    status, predicted, errors = command(run, task, "new.jsonl", "--label-budget", "4", *seeds)
    assert (status, errors) == (0, "") and [row["id"] for row in predicted] == list("76543210")
    pretrain_seed, finetune_seed = map(int, seeds[1::2] or (1, 1))
    key = TrialKey(run, pretrain_seed, task, CLASSICAL, "4", finetune_seed)
    written = {
        row.id: (row.prediction, row.probability)
        for row in read(paths.BASELINES / task / "predictions.csv.gz", PredictionRecord)
        if row.key == key
    }
    assert written == {
        row["id"]: (
            row["label"] if "label" in row else " ".join(row["tags"]),
            row.get("probability"),
        )
        for row in predicted
    }
    if task == "tag":
        assert all(row["words"] == ["a", row["words"][1]] for row in predicted)


def test_predict_names_the_trials_and_the_mistake(command, tmp_path: Path) -> None:
    Path("new.txt").write_text("a pear\n")
    (tmp_path / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    mistakes = {
        ("tfidf", "type"): "several kept trials match: --method classical --label-budget 4 "
        "--finetune-seed 1 --pretrain-seed 1; --method classical --label-budget all",
        ("tfidf", "type", "--finetune-seed", "9"): "no kept trial matches",
        ("tfidf", "tag"): "no trial of tfidf on tag: ",
        ("crf", "section"): "`dvc repro fit_baseline@section` has not run",
        ("tfidff", "tag"): "models, baselines: unknown 'tfidff'; did you mean 'tfidf'",
    }
    for (run, task, *options), message in mistakes.items():
        status, rows, errors = command(run, task, "new.txt", *options)
        assert (status, rows) == (2, []) and message in errors and errors.count("\n") == 1, errors
        assert "keep_weights" not in errors
