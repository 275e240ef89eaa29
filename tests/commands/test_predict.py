"""A kept trial or a baseline predicts new text as it did test inputs; a user's mistake is named."""

import csv
import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stages import finetune, pretrain
from stages.core import paths
from stages.core.artifacts import read_jsonl, write_jsonl
from stages.core.keys import TrialKey
from stages.evaluation.records import CLASSICAL, PredictionRecord, read
from stages.tasks._task import TASKS as KINDS
from stages.trials.new_files import NewFile, TaskInputs
from tests.labelled_words import fit_baselines
from tests.small_study import (
    LINES,
    MAX_TOKENS,
    SCRATCH,
    TASKS,
    finetune_plan,
    pretrain_plan,
    write_inputs,
    write_study,
)
from tests.smoke import ROOT, alone


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study with the kept trials of a model with two seeds."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        params = alone(write_study(folder, lr=[3e-3, 1e-2]), SCRATCH)
        scratch = params.models[SCRATCH].model_copy(update={"seeds": [1, 5]})
        params = params.model_copy(update={"models": {SCRATCH: scratch}})
        write_inputs(params)
        pretrain.main(pretrain_plan(params, SCRATCH), SCRATCH)
        for task in TASKS:
            finetune.main(finetune_plan(params, task), task)
    return folder


@pytest.fixture
def study(trained: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Yields a folder to write to; the study's folder is the current one."""
    monkeypatch.chdir(trained)
    yield tmp_path


@pytest.fixture
def baselines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder has fitted baselines."""
    monkeypatch.chdir(tmp_path)
    fit_baselines()


TRIAL = ("--method", "full", "--finetune-seed", "1")
SECTION, TAG = (("--model", SCRATCH, "--task", task, *TRIAL) for task in TASKS)
TEXTS = ["call it (now)", "plain 漢字 and Ωmega", '"quoted", with a comma']


def shown(row: dict[str, Any]) -> str:
    return row["label"] if "label" in row else " ".join(row["tags"])


def of_study(path: Path, key: TrialKey) -> dict[str, str]:
    """Returns the predictions of a trial for the test inputs."""
    return {row.id: row.prediction for row in read(path, PredictionRecord) if row.key == key}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "method", "pretrain_seed"),
    [("section", "full", 5), ("section", "linear_probe", 1), ("tag", "full", 1)],
)
def test_predict_predicts_the_test_inputs_as_the_study_did(
    study, predict, task, method, pretrain_seed
) -> None:
    """Rows have another order here, and two seeds are compared. The first pretraining seed is the
    default."""
    test = read_jsonl(Path("data/tasks", task, "examples/test.jsonl"))
    write_jsonl(study / "new.jsonl", reversed(test))
    which = ("--model", SCRATCH, "--task", task, "--method", method)
    which += ("--pretrain-seed", "5") if pretrain_seed > 1 else ()
    for seed in (1, 2):
        status, rows, _ = predict(*which, "--finetune-seed", str(seed), str(study / "new.jsonl"))
        assert status == 0 and [row["id"] for row in rows] == [row["id"] for row in test[::-1]]
        key = TrialKey(SCRATCH, pretrain_seed, task, method, "64", seed)
        path = Path("data/finetuned", task, SCRATCH, "predictions.csv.gz")
        assert {row["id"]: shown(row) for row in rows} == of_study(path, key)
    for new, row in zip(rows, test[::-1], strict=True):
        if scores := new.get("scores"):
            assert new["label"] == max(scores, key=scores.get)
            assert sum(scores.values()) == pytest.approx(1, abs=1e-5)
        assert new.get("words") == row.get("words")


@pytest.mark.parametrize("seeds", [(), ("--pretrain-seed", "7", "--finetune-seed", "2")])
@pytest.mark.parametrize(("name", "task"), [("crf", "tag"), ("tfidf", "type")])
def test_predict_of_a_baseline_predicts_the_test_rows_as_the_stage_did(
    baselines, predict, name, task, seeds
) -> None:
    write_jsonl(Path("new.jsonl"), reversed(read_jsonl(paths.examples(task) / "test.jsonl")))
    which = ("--model", name, "--task", task, "--label-budget", "4", *seeds)
    status, rows, errors = predict(*which, "new.jsonl")
    assert (status, errors) == (0, "") and [row["id"] for row in rows] == list("76543210")
    pretrain_seed, finetune_seed = map(int, seeds[1::2] or (1, 1))
    key = TrialKey(name, pretrain_seed, task, CLASSICAL, "4", finetune_seed)
    path = paths.BASELINES / task / "predictions.csv.gz"
    assert {row["id"]: shown(row) for row in rows} == of_study(path, key)
    stored = {row.id: row.probability for row in read(path, PredictionRecord) if row.key == key}
    assert {row["id"]: row.get("probability") for row in rows} == stored


# Files ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_predict_reads_texts_in_every_format(study, predict) -> None:
    _, expected, _ = predict(*SECTION, stdin="\n".join(TEXTS))
    objects = [{"text": text} for text in TEXTS]
    spellings = {  # the same texts in each format, with the numbers of their lines
        "txt": ("\ufeff" + "".join(f"{text}\r\n\n" for text in TEXTS), [1, 3, 5]),
        "jsonl": ("\n\n".join(map(json.dumps, objects)), [1, 3, 5]),
        "json": (json.dumps(objects, ensure_ascii=False), [1, 2, 3]),
    }
    for format, (text, lines) in spellings.items():
        path = study / f"new.{format}.gz"
        path.write_bytes(gzip.compress(text.encode()))
        _, rows, _ = predict(*SECTION, str(path))
        assert [row["scores"] for row in rows] == [row["scores"] for row in expected], format
        assert [row["object" if format == "json" else "line"] for row in rows] == lines


@pytest.mark.slow
@pytest.mark.parametrize(("format", "sign"), [("csv", ";"), ("tsv", "\t")])
def test_predict_adds_two_columns_to_a_table(study, predict, run, format, sign) -> None:
    _, expected, _ = predict(*SECTION, stdin="\n".join(TEXTS))
    form: Any = {"delimiter": sign}
    form |= {"quoting": csv.QUOTE_NONE, "quotechar": None} if format == "tsv" else {}
    rows = [["nr", "text", "prediction"], *(["1", text, "x"] for text in TEXTS)]
    with (study / f"new.{format}").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, **form).writerows(rows)
    ended = run("predict", *SECTION, str(study / f"new.{format}"))
    header, *written = csv.reader(ended.out.splitlines(), **form)
    assert header == ["nr", "text", "prediction", "prediction_2", "probability"]
    assert [row[:3] for row in written] == rows[1:]
    assert [row[3] for row in written] == [row["label"] for row in expected]
    assert [float(row[4]) for row in written] == [max(r["scores"].values()) for r in expected]


BODIES = {"text": "body"}
SEMICOLONS = {"text": "body", "delimiter": "semicolon"}
NO_HEADER = {"columns": ["id", "text", "label"]}
IN_DATA = {"path": "a.data", "format": "csv"}
OF_MANY = {"path": "data", "train": "train", "format": "parallel"}


@pytest.mark.parametrize(
    ("name", "content", "source", "texts"),
    [
        ("new.csv", "text,body\none,two\n", BODIES, ["two"]),
        ("new.csv", "text,other\none,two\n", BODIES, ["one"]),
        ("new.csv", "text;body\none;two, too\n", SEMICOLONS, ["two, too"]),
        ("new.csv", "text,body\none,two\n", SEMICOLONS, ["two"]),
        ("new.csv", "text;body\none;two\n", BODIES, ["two"]),
        ("new.csv", "1,one,good\n2,two,bad\n", NO_HEADER, ["one", "two"]),
        ("new.csv", "1,one\n2,two\n", NO_HEADER, ["one", "two"]),
        ("new.csv", "label,id,text\ngood,1,one\n", NO_HEADER, ["one"]),
        ("new.csv", 'text\none\n""\ntwo\n', {"empty_cells": "skip"}, ["one", None, "two"]),
        ("new.data", "text\none\n", IN_DATA, ["one"]),
        ("new.tsv", "text,label\none,a\n", {**IN_DATA, "path": "a.tsv"}, ["one"]),
        ("new.jsonl", '{"text": "one"}\n', {**IN_DATA, "path": "a.tsv"}, ["one"]),
        ("new.en", "one\ntwo\n", OF_MANY, ["one", "two"]),
    ],
)
def test_rows_are_read_as_the_study_reads_its_own(name, content, source, texts, tmp_path) -> None:
    file = NewFile(tmp_path / name)
    (tmp_path / name).write_text(content)
    task = TaskInputs("titles", KINDS["classification"], ("text",), source=source)
    rows = [new.row for new in task.rows(file, task.reading(file))]
    assert [row and row["text"] for row in rows] == texts


WORDS = [{"words": ["The", "class", "Ωmega"]}, {"words": ["ends", "here"]}]
CHOICES = [{"text": "It rained.", "choices": ["He got wet.", "He ate."]}]


@pytest.mark.parametrize(
    ("name", "content", "kind", "expected"),
    [
        ("new.csv", "text,a,b\nIt rained.,He got wet.,He ate.\n", "multiple_choice", CHOICES),
        ("new.jsonl", json.dumps(CHOICES[0]), "multiple_choice", CHOICES),
        ("new.txt", "The  class Ωmega\n\n\tends here\n", "tagging", WORDS),
        ("new.jsonl", f'{json.dumps(WORDS[0])}\n{{"words": "ends here"}}\n', "tagging", WORDS),
        ("new.conll", "The O\nclass O\nΩmega B-CODE\n\nends O\nhere O\n", "tagging", WORDS),
    ],
)
def test_rows_have_choices_and_words_from_every_format(
    name, content, kind, expected, tmp_path: Path
) -> None:
    file, inputs = NewFile(tmp_path / name), tuple(expected[0])
    (tmp_path / name).write_text(content)
    task = TaskInputs("why", KINDS[kind], inputs, source={"choices": ["a", "b"]})
    rows = [new.row for new in task.rows(file, task.reading(file))]
    assert [{key: row[key] for key in inputs} for row in rows if row] == expected


# What is written -----------------------------------------------------------------------------


@pytest.mark.slow
def test_predict_leaves_unsure_rows_without_a_prediction(study, predict) -> None:
    texts = "\n".join(" ".join(words) for words in LINES[-12:])
    _, expected, error = predict(*SECTION, stdin=texts)
    assert error == "", "every row has a prediction"
    sure = sorted(max(row["scores"].values()) for row in expected)
    least = (sure[4] + sure[5]) / 2  # 5 rows are below
    status, rows, error = predict(*SECTION, "--min-confidence", str(least), stdin=texts)
    assert status == 0 and [row["scores"] for row in rows] == [row["scores"] for row in expected]
    assert [row["label"] for row in rows] == [
        row["label"] if max(row["scores"].values()) >= least else "" for row in expected
    ]
    assert error.startswith("5 of 12 rows (41.7%)") and error.count("\n") == 1


@pytest.mark.slow
def test_predict_cuts_a_long_text_as_training_does(study, predict) -> None:
    """Text after the cut changes nothing, and words that were cut off have the tag O."""
    start = "word " * 2 * MAX_TOKENS
    _, (one, other), _ = predict(*SECTION, stdin=f"{start}(\n{start}and so on\n")
    assert one["scores"] == other["scores"]
    _, (row,), _ = predict(*TAG, stdin=start + "Title\n")
    assert len(row["tags"]) == len(row["words"]) == 2 * MAX_TOKENS + 1 and row["tags"][-1] == "O"


@pytest.mark.slow
def test_predict_writes_its_output_whole_or_not_at_all(study, predict) -> None:
    out = study / "folder" / "out.jsonl"
    assert predict(*SECTION, "--output", str(out), stdin="one\ntwo (three)\n")[:2] == (0, [])
    before = out.read_text(encoding="utf-8")
    assert [json.loads(line)["line"] for line in before.splitlines()] == [1, 2]
    broken = b'{"text": "fine"}\n' * 600 + b'{"txt": "not"}\n'
    status, _, error = predict(*SECTION, "--format", "jsonl", "--output", str(out), stdin=broken)
    assert status == 2 and "stdin line 601: no column 'text'" in error
    assert out.read_text(encoding="utf-8") == before
    assert predict(*SECTION, "--output", str(study), stdin="one\n")[0] == 2


# Mistakes ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_predict_uses_the_only_kept_trial_if_it_is_as_it_was(study, predict, monkeypatch) -> None:
    shutil.copytree("data", study / "copy/data")
    monkeypatch.chdir(study / "copy")
    for path in Path("data/finetuned/section", SCRATCH, "weights").iterdir():
        if path.name != "full-64-1-2.safetensors":
            path.unlink()
    which = ("--model", SCRATCH, "--task", "section")
    status, rows, _ = predict(*which, stdin="a (b)\n")
    assert status == 0 and rows[0].keys() == {"line", "label", "scores"}
    train = Path("data/tasks/section/examples/train.jsonl")
    write_jsonl(train, read_jsonl(train)[1:])
    status, _, error = predict(*which, stdin="a (b)\n")
    assert (
        status == 2
        and error.startswith("error: ")
        and f"{train.parent} or the version of torch has changed" in error
    )


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
        ("words", "new.csv", "text,words", (), "columns of the tasks type and tag"),
        ("words", "new.csv", "txet", ("--task", "type"), "no column 'text'; did you mean 'txet'"),
        ("words", "newer.csv", "text", (), "newer.csv: no such file; did you mean new.csv?"),
        ("others", "new.csv", "text", (), "recommends no model for type of the study others"),
        ("words", "new.csv", "text", ("--column", "txt=a"), "--column"),
        ("words", "new.csv", "text", ("--task", "tye"), "unknown 'tye'; did you mean 'type'"),
        ("words", "new.csv", "text", ("--method", "full"), "no kept trial matches; kept are: "),
        (None, "new.csv", "words", ("--model", "crff"), "unknown 'crff'; did you mean 'crf'"),
        (None, "new.csv", "words", ("--model", "tfidf"), "no trial of tfidf on tag: "),
    ],
)
def test_predict_takes_the_recommended_model_and_the_task_that_fits(
    baselines, study, name, header, flags, said, run
) -> None:
    declared = f"study: {study}\ntasks: {{type: {{}}, tag: {{}}}}\n"
    Path("params.yaml").write_text(declared if study else (ROOT / "params.yaml").read_text())
    paths.REPORTS.mkdir()
    (paths.REPORTS / "answer.csv").write_text(ANSWERS)
    (paths.REPORTS / "trials.csv").write_text("study\nwords\n")
    Path("new.csv").write_text(f"{header}\na pear{',' * header.count(',')}\n")
    status, out, errors = run("predict", name, *flags)
    assert said in errors and errors.count("\n") == bool(said)
    assert errors.startswith("error: ") == (status == 2)
    assert (status == 0) == out.startswith(f"{header},prediction,probability\na pear,"), errors
