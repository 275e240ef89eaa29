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
    which = ("--model", run, "--task", task, "--label-budget", "4", *seeds)
    status, predicted, errors = command(*which, "new.jsonl")
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


ANSWERS = """task,label_budget,model,method
type,4,majority,classical
type,all,tfidf,classical
tag,all,crf,classical
"""


@pytest.mark.parametrize(
    ("study", "name", "header", "flags", "said"),
    [
        ("words", "new.csv", "text", (), "type: predicted from text by tfidf"),
        ("words", "new.csv", "words", (), "tag: predicted from words by crf"),
        ("words", "new.csv", "text", ("--label-budget", "4"), "by majority"),
        ("words", "new.csv", "text", ("--model", "majority"), ""),
        ("words", "new.csv", "txet", (), "type reads text; tag reads words; name the task: TASK="),
        ("words", "new.csv", "txet", ("--task", "type"), "no column 'text'; did you mean 'txet'"),
        ("words", "newer.csv", "text", (), "newer.csv: no such file; did you mean new.csv?"),
        ("others", "new.csv", "text", (), "recommends no model for type of the study others"),
        (None, "new.csv", "words", ("--model", "crff"), "unknown 'crff'; did you mean 'crf'"),
        (None, "new.csv", "words", ("--model", "tfidf"), "no trial of tfidf on tag: "),
    ],
)
def test_predict_takes_the_recommended_model_and_the_task_that_fits(
    study, name, header, flags, said, run_command
) -> None:
    declared = f"study: {study}\ntasks: {{type: {{}}, tag: {{}}}}\n"
    Path("params.yaml").write_text(declared if study else (ROOT / "params.yaml").read_text())
    paths.REPORTS.mkdir()
    (paths.REPORTS / "answer.csv").write_text(ANSWERS)
    (paths.REPORTS / "trials.csv").write_text("study\nwords\n")
    Path("new.csv").write_text(f"{header}\na pear\n")
    status, out, errors = run_command("predict", name, *flags)
    assert said in errors and errors.count("\n") == bool(said)
    assert (status == 0) == out.startswith(f"{header},prediction,probability\na pear,"), errors
