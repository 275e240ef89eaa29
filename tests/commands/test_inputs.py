"""The command that writes the inputs for an external system."""

import csv
import json
from pathlib import Path

import pytest

from stages.commands import inputs
from stages.core import paths
from stages.core.artifacts import read_jsonl
from tests.labelled_words import write_tasks


@pytest.fixture(autouse=True)
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tasks()


@pytest.mark.parametrize("task", ["type", "tag"])
def test_inputs_writes_each_input_once_and_no_label(
    task: str, capsys: pytest.CaptureFixture[str]
) -> None:
    column = {"type": "text", "tag": "words"}[task]
    values = [row[column] for row in read_jsonl(paths.examples(task) / "test.jsonl")]
    inputs.run(task, None)
    out, err = capsys.readouterr()
    cells = [row[column] for row in csv.DictReader(out.splitlines())]
    written = cells if task == "type" else [json.loads(cell) for cell in cells]
    assert len(values) == 8 and written == values[:4]  # test has each value twice
    labels = {"type": "fruit, tool", "tag": "B-TOOL, O"}[task]
    assert err.startswith(f"4 inputs of {task}; add the column prediction (of {labels})")
    inputs.run(task, Path("some.jsonl"))
    assert read_jsonl(Path("some.jsonl")) == [{column: value} for value in values[:4]]


@pytest.mark.parametrize("name", ["old.csv", "new.xlsx"])
def test_inputs_refuses_to_write_over_predictions_and_other_formats(name: str) -> None:
    Path("old.csv").write_text("")
    with pytest.raises(ValueError, match=f"--out: {name}"):
        inputs.run("type", Path(name))
