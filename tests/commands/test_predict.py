"""A kept trial predicts new text as it did test inputs; a user's mistake is named."""

import csv
import gzip
import io
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stages import finetune, pretrain
from stages.core.artifacts import read_jsonl, write_jsonl
from stages.core.keys import TrialKey
from stages.core.params import Method, Params
from stages.evaluation import records
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
        for run in params.runs:
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
    run = params.runs[SCRATCH]
    decoder = run.model_copy(update={"architecture": run.architecture | {"name": "gpt_neox"}})
    shots = {"name": "in_context", "num_shots": 3, "normalise": "unconditional"}
    settings: dict[str, Any] = {
        "methods": {"shots": Method(method=shots)},
        "max_tokens": 512,  # else no example fits into a prompt
        "keep_weights": "none",
    }
    update = {
        "runs": {DECODER: decoder},
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
SECTION, TAG = ((SCRATCH, task, *TRIAL) for task in TASKS)


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
    ("run", "task", "method"),
    [
        (SCRATCH, "section", "full"),
        (SCRATCH, "tag", "full"),
        (SCRATCH, "tag", "linear_probe"),
        ("public", "section", "full"),
        ("public", "section", "linear_probe"),
        (DECODER, "section", "shots"),  # the seed draws the examples of a prompt
    ],
)
def test_predict_predicts_the_test_inputs_as_the_study_did(
    study, command, run, task, method
) -> None:
    """The rows have another order here, and two seeds are compared."""
    test = read_jsonl(Path("data/tasks", task, "examples/test.jsonl"))
    write_jsonl(study / "new.jsonl", reversed(test))
    which = (run, task, "--method", method)
    for seed in (1, 2):
        status, rows, _ = command(*which, "--finetune-seed", str(seed), str(study / "new.jsonl"))
        assert status == 0 and [row["id"] for row in rows] == [row["id"] for row in test[::-1]]
        written = {r["id"]: r["label"] if "label" in r else " ".join(r["tags"]) for r in rows}
        assert written == of_study(run, task, method, seed)
        if (run, method) == (SCRATCH, "full"):
            assert len({part for text in written.values() for part in text.split()}) == 2
    assert all(
        row["label"] == max(row["scores"], key=row["scores"].get)
        and sum(row["scores"].values()) == pytest.approx(1, abs=1e-5)
        for row in rows
        if "scores" in row
    )
    words = {row["id"]: row.get("words") for row in test}
    assert all(row["words"] == words[row["id"]] for row in rows if "tags" in row)


@pytest.mark.parametrize("options", [(), ("--pretrain-seed", "5")])
def test_predict_uses_the_first_pretraining_seed_unless_another_is_named(
    study, command, options
) -> None:
    test = read_jsonl(Path("data/tasks/section/examples/test.jsonl"))
    write_jsonl(study / "new.jsonl", test)
    _, rows, _ = command(*SECTION, *options, str(study / "new.jsonl"))
    expected = of_study(SCRATCH, "section", "full", 1, pretrain_seed=5 if options else 1)
    assert {row["id"]: row["label"] for row in rows} == expected


TEXTS = ["call it (now)", "plain 漢字 and Ωmega", '"quoted", with a comma']


def spellings() -> dict[str, str]:
    """Returns the same texts in each format that holds texts."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerows([["number", "text"], *([str(i), text] for i, text in enumerate(TEXTS))])
    objects = [{"text": text} for text in TEXTS]
    return {
        "txt": "\ufeff" + "".join(f"{text}\r\n\n" for text in TEXTS),
        "csv": table.getvalue(),
        "tsv": "text\n" + "\n".join(TEXTS),
        "jsonl": "\n\n".join(json.dumps(row) for row in objects),
        "json": json.dumps(objects, ensure_ascii=False),
    }


LINES_OF_TEXTS = {"txt": [1, 3, 5], "csv": [2, 3, 4], "tsv": [2, 3, 4], "jsonl": [1, 3, 5]}


def test_predict_reads_texts_in_every_format(study, command) -> None:
    _, expected, _ = command(*SECTION, stdin="\n".join(TEXTS))
    assert [row["line"] for row in expected] == [1, 2, 3]
    for format, text in spellings().items():
        path = study / f"new.{format}.gz"
        path.write_bytes(gzip.compress(text.encode()))
        _, rows, _ = command(*SECTION, str(path))
        assert [row["scores"] for row in rows] == [row["scores"] for row in expected], format
        place = "object" if format == "json" else "line"
        assert [row[place] for row in rows] == LINES_OF_TEXTS.get(format, [1, 2, 3])


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


def test_predict_reads_columns_of_other_names(study, command) -> None:
    (study / "new.csv").write_text("review,stars\nfine (really),5\n")
    status, rows, _ = command(*SECTION, "--column", "text=review", str(study / "new.csv"))
    assert status == 0 and len(rows) == 1


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
        (SECTION, "\n \n", "new.txt: no rows"),
        ((*SECTION, "--format", "csv"), "id,txt\n1,some\n", "line 2: no column 'text'; there are"),
        (
            (*SECTION, "--format", "jsonl"),
            '{"text": ["one"]}\n',
            "text must be a text, not ['one']",
        ),
        ((*SECTION, "--column", "txt=a"), "a\n", "--column: must be INPUT=COLUMN, INPUT one"),
        ((SCRATCH, "tga"), "a\n", "unknown 'tga'; did you mean 'tag'"),
        ((SCRATCH, "tag", "--finetune-seed", "1"), "a\n", "several kept trials match: "),
        ((*TAG, "--method", "lora"), "a\n", "no kept trial matches"),
        ((*TAG, "--min-confidence", "0.9"), "a\n", "this trial have no probability"),
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
    which = (SCRATCH, "section")
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


def test_predict_ends_well_when_its_reader_has_enough(study) -> None:
    """A reader such as ``head -1`` closes the pipe."""
    (study / "new.txt").write_text("some text\n" * 3000)
    running = subprocess.Popen(
        [sys.executable, "-m", "stages.commands.predict", *SECTION, str(study / "new.txt")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None and running.stderr is not None
    assert json.loads(running.stdout.readline())["line"] == 1
    running.stdout.close()
    assert running.stderr.read() == ""
    assert running.wait() in (0, -signal.SIGPIPE)
