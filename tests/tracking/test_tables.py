import gzip
import json
from pathlib import Path

import pytest

from stages.kinds._kind import KINDS
from stages.tracking import tables

TRIAL = {"run": "a", "task": "t", "method": "full", "label_budget": "50", "finetune_seed": "1"}


def write(rows: list[dict[str, str]], gold: list[str], predicted: list[str]) -> None:
    """A task of two classes, and what a run predicted with two seeds."""
    examples = Path("data/tasks/t/examples")
    examples.mkdir(parents=True)
    (examples / "task.json").write_text(json.dumps({"kind": "classification"}))
    (examples / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    labels = [{"id": row["id"], "label": each} for row, each in zip(rows, gold, strict=True)]
    Path("data/tasks/t/test_labels.jsonl").write_text("\n".join(map(json.dumps, labels)))
    folder = Path("data/finetuned/t/a")
    folder.mkdir(parents=True)
    lines = ["method,label_budget,finetune_seed,id,prediction,probability"]
    for seed in ("2", "1"):
        for place, (row, each) in enumerate(zip(rows, predicted, strict=True)):
            shown = each if seed == "1" else "of another seed"
            lines.append(f"full,50,{seed},{row['id']},{shown},0.{place + 1}")
    with gzip.open(folder / "predictions.csv.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")


def test_the_most_confident_mistakes_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"id": f"r{i}", "text": f"text {i}"} for i in range(4)]
    write(rows, ["x", "y", "x", "y"], ["x", "x", "y", "y"])
    assert tables.tables(TRIAL, []).keys() == {"predictions"}
    found = tables.predictions(TRIAL, KINDS["classification"])
    assert [(row["text"], row["right"]) for row in found] == [
        ("text 2", False),
        ("text 1", False),
        ("text 3", True),
        ("text 0", True),
    ]
    assert [row["probability"] for row in found] == [0.3, 0.2, 0.4, 0.1]
    monkeypatch.setattr(tables, "MAX_ROWS", 2)
    assert tables.predictions(TRIAL, KINDS["classification"]) == found[:2]


def test_without_its_files_there_is_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert tables.tables(TRIAL, []) == {}


def test_confusion_is_a_matrix_of_all_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two runs; a class that is never right has a column and no row."""
    counts = [("x", "x", 3), ("x", "y", 1), ("x", "z", 1), ("y", "y", 2), ("x", "y", 4)]
    rows = [{"answer": a, "prediction": p, "number": str(n)} for a, p, n in counts]
    assert tables.confusion(rows) == [
        {tables.CORNER: "x", "x": 3, "y": 5, "z": 1},
        {tables.CORNER: "y", "x": 0, "y": 2, "z": 0},
    ]
    monkeypatch.setattr(tables, "MAX_CLASSES", 2)
    assert tables.confusion(rows)[0] == {"answer": "x", "prediction": "y", "number": 5}
