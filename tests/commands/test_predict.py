"""A kept trial predicts new text as it did test inputs; a user's mistake is named."""

import csv
import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stages import finetune, pretrain
from stages.core.artifacts import read_jsonl, write_jsonl
from stages.core.keys import TrialKey
from stages.core.params import Method, Params
from stages.evaluation import records
from stages.tasks._task import TASKS as KINDS
from stages.trials.new_files import NewFile, TaskInputs, fitting
from tests.planning.studies import with_run
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
from tests.smoke import alone

pytestmark = pytest.mark.slow

DECODER = "decoder_scratch"


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """Returns the folder of a study with its kept trials."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        params = with_run(write_study(folder, lr=[3e-3, 1e-2]), SCRATCH, seeds=[1, 5])
        write_inputs(params)
        for run in params.models:
            pretrain.main(pretrain_plan(params, run), run)
        for task in TASKS:
            finetune.main(finetune_plan(alone(params, SCRATCH), task), task)
        finetune.main(finetune_plan(alone(params, "public"), "section"), "section")
        prompted = with_prompts(params)
        write_inputs(prompted)
        pretrain.main(pretrain_plan(prompted, DECODER), DECODER)
        finetune.main(finetune_plan(prompted, "section"), "section")
        write_inputs(params)
    return folder


def with_prompts(params: Params) -> Params:
    """Returns a study that prompts a decoder without training and keeps no weights."""
    run = params.models[SCRATCH]
    decoder = run.model_copy(update={"architecture": run.architecture | {"name": "phi"}})
    shots = {"name": "in_context", "num_shots": 3, "normalise": "unconditional"}
    settings: dict[str, Any] = {
        "methods": {"shots": Method(method=shots)},
        "max_tokens": 512,  # else no example fits into a prompt
        "keep_weights": "none",
    }
    update = {
        "models": {DECODER: decoder},
        "finetune": params.finetune.model_copy(update=settings),
        "pretrain": params.pretrain.model_copy(update={"reference": DECODER}),
    }
    return params.model_copy(update=update)


@pytest.fixture
def study(trained, monkeypatch, tmp_path) -> Iterator[Path]:
    """Yields a folder to write to; the study's folder is the current one."""
    monkeypatch.chdir(trained)
    yield tmp_path


TRIAL = ("--method", "full", "--finetune-seed", "1")
SECTION, TAG = (("--model", SCRATCH, "--task", task, *TRIAL) for task in TASKS)


def of_study(run: str, task: str, method: str, seed: int, pretrain_seed: int = 1) -> dict[str, str]:
    """Returns the predictions of a trial for the test inputs."""
    rows = records.read(
        Path("data/finetuned", task, run, "predictions.csv.gz"), records.PredictionRecord
    )
    return {
        row.id: row.prediction
        for row in rows
        if row.key == TrialKey(run, pretrain_seed, task, method, "64", seed)
    }


@pytest.mark.parametrize(
    ("run", "task", "method", "pretrain_seed"),
    [
        (SCRATCH, "section", "full", 1),
        (SCRATCH, "section", "full", 5),
        (SCRATCH, "tag", "full", 1),
        (SCRATCH, "tag", "linear_probe", 1),
        ("public", "section", "linear_probe", 1),
        (DECODER, "section", "shots", 1),  # the seed draws the examples of a prompt
    ],
)
def test_predict_predicts_the_test_inputs_as_the_study_did(
    study, command, run, task, method, pretrain_seed
) -> None:
    """The rows have another order here, and two seeds are compared. The first pretraining seed is
    the default."""
    test = read_jsonl(Path("data/tasks", task, "examples/test.jsonl"))
    write_jsonl(study / "new.jsonl", reversed(test))
    which = ("--model", run, "--task", task, "--method", method)
    which += ("--pretrain-seed", "5") if pretrain_seed > 1 else ()
    for seed in (1, 2):
        status, rows, _ = command(*which, "--finetune-seed", str(seed), str(study / "new.jsonl"))
        assert status == 0 and [row["id"] for row in rows] == [row["id"] for row in test[::-1]]
        written = {r["id"]: r["label"] if "label" in r else " ".join(r["tags"]) for r in rows}
        assert written == of_study(run, task, method, seed, pretrain_seed)
    assert all(
        row["label"] == max(row["scores"], key=row["scores"].get)
        and sum(row["scores"].values()) == pytest.approx(1, abs=1e-5)
        for row in rows
        if "scores" in row
    )
    words = {row["id"]: row.get("words") for row in test}
    assert all(row["words"] == words[row["id"]] for row in rows if "tags" in row)


TEXTS = ["call it (now)", "plain 漢字 and Ωmega", '"quoted", with a comma']


def test_predict_reads_texts_in_every_format(study, command) -> None:
    _, expected, _ = command(*SECTION, stdin="\n".join(TEXTS))
    objects = [{"text": text} for text in TEXTS]
    spellings = {  # the same texts in each format, with the numbers of their lines
        "txt": ("\ufeff" + "".join(f"{text}\r\n\n" for text in TEXTS), [1, 3, 5]),
        "jsonl": ("\n\n".join(map(json.dumps, objects)), [1, 3, 5]),
        "json": (json.dumps(objects, ensure_ascii=False), [1, 2, 3]),
    }
    for format, (text, lines) in spellings.items():
        path = study / f"new.{format}.gz"
        path.write_bytes(gzip.compress(text.encode()))
        _, rows, _ = command(*SECTION, str(path))
        assert [row["scores"] for row in rows] == [row["scores"] for row in expected], format
        assert [row["object" if format == "json" else "line"] for row in rows] == lines


@pytest.mark.parametrize(("format", "sign"), [("csv", ","), ("csv", ";"), ("tsv", "\t")])
def test_predict_adds_two_columns_to_a_table(study, command, run_command, format, sign) -> None:
    _, expected, _ = command(*SECTION, stdin="\n".join(TEXTS))
    form: Any = {"delimiter": sign}
    form |= {"quoting": csv.QUOTE_NONE, "quotechar": None} if format == "tsv" else {}
    rows = [["nr", "text", "prediction"], *(["1", text, "x"] for text in TEXTS)]
    with (study / f"new.{format}").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, **form).writerows(rows)
    ended = run_command("predict", *SECTION, str(study / f"new.{format}"))
    header, *written = csv.reader(ended.out.splitlines(), **form)
    assert header == ["nr", "text", "prediction", "prediction_2", "probability"]
    assert [row[:3] for row in written] == rows[1:]
    assert [row[3] for row in written] == [row["label"] for row in expected]
    assert [float(row[4]) for row in written] == [max(r["scores"].values()) for r in expected]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("new.txt", "The  class Ωmega\n\n\tends here\n"),
        ("new.jsonl", '{"words": ["The", "class", "Ωmega"]}\n{"words": "ends here"}\n'),
        ("new.conll", "The O\nclass O\nΩmega B-CODE\n\nends O\nhere O\n"),
    ],
)
def test_predict_reads_words_in_every_format(study, command, name, text) -> None:
    (study / name).write_text(text)
    status, rows, _ = command(*TAG, str(study / name))
    assert status == 0
    assert [row["words"] for row in rows] == [["The", "class", "Ωmega"], ["ends", "here"]]
    assert all(len(row["tags"]) == len(row["words"]) for row in rows)
    assert {tag for row in rows for tag in row["tags"]} <= {"B-CODE", "O"}


def test_predict_leaves_unsure_rows_without_a_prediction(study, command) -> None:
    texts = "\n".join(" ".join(words) for words in LINES[-12:])
    _, expected, error = command(*SECTION, stdin=texts)
    assert error == "", "every row has a prediction"
    sure = sorted(max(row["scores"].values()) for row in expected)
    least = (sure[4] + sure[5]) / 2  # 5 rows are below
    status, rows, error = command(*SECTION, "--min-confidence", str(least), stdin=texts)
    assert status == 0 and [row["scores"] for row in rows] == [row["scores"] for row in expected]
    assert [row["label"] for row in rows] == [
        row["label"] if max(row["scores"].values()) >= least else "" for row in expected
    ]
    assert error.startswith("5 of 12 rows (41.7%) have no prediction")
    assert error.count("\n") == 1


def test_predict_cuts_a_long_text_as_training_does(study, command) -> None:
    """Text after the cut changes nothing, and words that were cut off have the tag O."""
    start = "word " * 2 * MAX_TOKENS
    _, (one, other), _ = command(*SECTION, stdin=f"{start}(\n{start}and so on\n")
    assert one["scores"] == other["scores"]
    _, (row,), _ = command(*TAG, stdin=start + "Title\n")
    assert len(row["tags"]) == len(row["words"]) == 2 * MAX_TOKENS + 1 and row["tags"][-1] == "O"


CLASSES, CHOICES = KINDS["classification"], KINDS["multiple_choice"]
TITLES = TaskInputs("titles", CLASSES, ("text",), source={"text": "title"})
BODIES = TaskInputs("bodies", CLASSES, ("text",), source={"text": "body", "empty_cells": "skip"})
SEMICOLONS = {"text": "body", "delimiter": "semicolon"}
NO_HEADER = {"columns": ["id", "text", "label"]}


@pytest.mark.parametrize(
    ("content", "source", "texts"),
    [
        ("text,body\none,two\n", {"text": "body"}, ["two"]),
        ("text,other\none,two\n", {"text": "body"}, ["one"]),
        ("text;body\none;two, too\n", SEMICOLONS, ["two, too"]),
        ("text,body\none,two\n", SEMICOLONS, ["two"]),
        ("text;body\none;two\n", {"text": "body"}, ["two"]),
        ("1,one,good\n2,two,bad\n", NO_HEADER, ["one", "two"]),
        ("1,one\n2,two\n", NO_HEADER, ["one", "two"]),
        ("label,id,text\ngood,1,one\n", NO_HEADER, ["one"]),
        ('text\none\n""\ntwo\n', {"empty_cells": "skip"}, ["one", None, "two"]),
    ],
)
def test_rows_are_read_as_the_study_reads_its_own(content, source, texts, tmp_path: Path) -> None:
    file = NewFile(tmp_path / "new.csv")
    (tmp_path / "new.csv").write_text(content)
    task = TaskInputs("titles", CLASSES, ("text",), source=source)
    rows = [new.row for new in task.rows(file, task.reading(file))]
    assert [row and row["text"] for row in rows] == texts


@pytest.mark.parametrize(
    ("name", "source", "format"),
    [
        ("new.data", {"path": "a.data", "format": "csv"}, "csv"),
        ("new.tsv", {"path": "data", "train": "a.tsv", "format": "csv"}, "csv"),
        ("new.jsonl", {"path": "a.tsv", "format": "csv"}, "jsonl"),
        ("new.en", {"path": "data", "train": "train", "format": "parallel"}, "txt"),
    ],
)
def test_format_of_a_file_is_that_of_the_study(name, source, format) -> None:
    task = TaskInputs("titles", CLASSES, ("text",), source=source)
    assert task.format_of(NewFile(Path(name))) == format


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("title,text", "titles"),
        ("body", "bodies"),
        ("title,body", "columns of the tasks titles and bodies; .*TASK=titles"),
        ("subject", "has the columns subject; titles reads title; bodies reads body; .*TASK="),
    ],
)
def test_fitting_finds_the_task_by_the_columns_of_the_file(header, found, tmp_path: Path) -> None:
    file = NewFile(tmp_path / "new.csv")
    (tmp_path / "new.csv").write_text(f"{header}\na,b\n" if "," in header else f"{header}\na\n")
    if " " not in found:
        assert fitting(file, [TITLES, BODIES])[0].task == found
        return
    with pytest.raises(ValueError, match=found):
        fitting(file, [TITLES, BODIES])


def test_rows_have_choices_from_lists_of_texts_and_from_columns(tmp_path: Path) -> None:
    rows = [
        {"text": "It rained.", "choices": ["He got wet.", "He ate."]},
        {"text": "It rained.", "choices": ["One.", "Two.", "Three."], "question": "effect"},
    ]
    write_jsonl(tmp_path / "new.jsonl", rows)
    (tmp_path / "new.csv").write_text("text,a,b\nIt rained.,He got wet.,He ate.\n")
    task = TaskInputs(
        "why", CHOICES, ("text", "choices"), ("question",), source={"choices": ["a", "b"]}
    )
    for name, expected in (("new.jsonl", rows), ("new.csv", rows[:1])):
        file = NewFile(tmp_path / name)
        read = [new.row for new in task.rows(file, task.reading(file))]
        assert read == [{"id": str(i), **row} for i, row in enumerate(expected)]


def test_predict_writes_its_output_whole_or_not_at_all(study, command) -> None:
    out = study / "folder" / "out.jsonl"
    assert command(*SECTION, "--output", str(out), stdin="one\ntwo (three)\n")[:2] == (0, [])
    before = out.read_text(encoding="utf-8")
    assert [json.loads(line)["line"] for line in before.splitlines()] == [1, 2]
    broken = b'{"text": "fine"}\n' * 600 + b'{"txt": "not"}\n'
    status, _, error = command(*SECTION, "--format", "jsonl", "--output", str(out), stdin=broken)
    assert status == 2 and "stdin line 601: no column 'text'" in error
    assert out.read_text(encoding="utf-8") == before
    assert command(*SECTION, "--output", str(study), stdin="one\n")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "text", "message"),
    [
        ((*SECTION, "--format", "csv"), "id,txt\n1,some\n", "line 2: no column 'text'"),
        ((*SECTION, "--column", "txt=a"), "a\n", "--column"),
        ((*SECTION, "--method", "ful"), "a\n", "no kept trial matches; kept are: "),
        (("--model", SCRATCH, "--task", "tga"), "a\n", "unknown 'tga'; did you mean 'tag'"),
        (("--model", SCRATCH, "--task", "tag"), "a\n", "--method full or --method linear_probe"),
        ((*TAG, "--min-confidence", "0.9"), "a\n", "no probability"),
    ],
)
def test_predict_refuses_a_mistake_in_one_line(study, command, arguments, text, message) -> None:
    (study / "new.txt").write_text(text)
    status, rows, error = command(*arguments, str(study / "new.txt"))
    assert (status, rows) == (2, [])
    assert error.startswith("error: ") and message in error and error.count("\n") == 1


def test_predict_uses_the_only_kept_trial_if_it_is_as_it_was(
    study, command, tmp_path, monkeypatch
) -> None:
    shutil.copytree("data", tmp_path / "copy/data")
    monkeypatch.chdir(tmp_path / "copy")
    weights = Path("data/finetuned/section", SCRATCH, "weights")
    for path in weights.iterdir():
        if path.name != "full-64-1-2.safetensors":
            path.unlink()
    which = ("--model", SCRATCH, "--task", "section")
    status, rows, _ = command(*which, stdin="a (b)\n")
    assert status == 0 and rows[0].keys() == {"line", "label", "scores"}

    train = Path("data/tasks/section/examples/train.jsonl")
    rows = read_jsonl(train)
    write_jsonl(train, rows[1:])
    status, _, error = command(*which, stdin="a (b)\n")
    assert (
        status == 2 and "data/tasks/section/examples or the version of torch has changed" in error
    )
    write_jsonl(train, rows)
