"""A corpus holds its documents but none that is held out, and is the same every time."""

from pathlib import Path
from typing import Any, Literal

import pytest

from stages import prepare_corpus
from stages.core.artifacts import read_json, read_jsonl, write_json, write_jsonl
from stages.core.params import Corpus, TaskEntry
from stages.core.plans import CorpusPlan
from stages.evaluation.contamination import TaskTexts
from stages.sources._source import split_of
from tests.installed_package import install, module

FILES = {f"shelf/room_{i}.py": module("books", i) for i in range(60)}
FOLDER = Path("data/corpora/all")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("requirements.lock").touch()
    install(tmp_path / "site", monkeypatch, FILES)
    return tmp_path


def plan(against: Literal["none", "tasks"] = "none", **source: Any) -> CorpusPlan:
    corpus = Corpus(source=source or SHELF, max_tokens="all", decontaminate_against=against)
    source = {"name": "files", "path": "rows.csv"}
    numbers: dict[str, Any] = dict.fromkeys(("num_train", "num_validation", "num_test"), "all")
    task = TaskEntry(task={"name": "classification"}, source=source, seed=1, **numbers)
    tasks = {"one": task, "other": task} if against == "tasks" else {}
    return CorpusPlan(corpus=corpus, packages="", decontaminated_against=tasks, code={})


def write_tests(*of_tasks: list[str]) -> dict[str, list[list[str]]]:
    """Writes the test rows of two tasks; returns their texts."""
    rows = {
        task: [{"id": str(i), "text": text} for i, text in enumerate(texts)]
        for task, texts in zip(("one", "other"), of_tasks, strict=True)
    }
    for task, of_task in rows.items():
        folder = Path("data/tasks", task, "examples")
        folder.mkdir(parents=True)
        write_jsonl(folder / "test.jsonl", of_task)
        write_jsonl(folder.parent / "test_originals.jsonl", [])
        write_json(folder / "task.json", {"kind": "classification"})
    return {task: [[row["text"]] for row in of_task] for task, of_task in rows.items()}


SHELF = {"name": "installed_docs", "path": "requirements.lock", "packages": ["shelf"]}


def test_prepare_corpus_writes_the_documents_of_train_and_validation() -> None:
    prepare_corpus.main(plan(), "all")
    about = read_json(FOLDER / "corpus.json")
    for split in ("train", "validation"):
        rows = read_jsonl(FOLDER / f"{split}.jsonl")
        assert [row["id"] for row in rows] == [f for f in sorted(FILES) if split_of(f) == split]
        assert about[split] == {
            "documents": len(rows),
            "sentences": sum(len(row["sentences"]) for row in rows),
            "characters": sum(len(s) for row in rows for s in row["sentences"]),
        }
    assert about["held_out_documents"] == sum(split_of(file) == "test" for file in FILES) > 0
    assert about["versions"] == {"shelf": "1.2"}
    assert sorted(p.name for p in FOLDER.iterdir()) == [
        *("corpus.json", "train.jsonl", "validation.jsonl"),
    ]


def test_prepare_corpus_repeats_itself_until_a_text_changes(folder: Path) -> None:
    prepare_corpus.main(plan(), "all")
    first = {p.name: p.read_bytes() for p in FOLDER.iterdir()}
    prepare_corpus.main(plan(), "all")
    assert {p.name: p.read_bytes() for p in FOLDER.iterdir()} == first
    before = read_json(FOLDER / "corpus.json")["sha256"]
    (folder / "site/shelf/room_0.py").write_text(module("maps", 0))
    prepare_corpus.main(plan(), "all")
    assert read_json(FOLDER / "corpus.json")["sha256"] != before


def test_prepare_corpus_refuses_an_empty_corpus_and_leaves_nothing() -> None:
    Path("book.txt").write_text("")
    with pytest.raises(ValueError, match=r"corpora\.all\.source: no text for train"):
        prepare_corpus.main(plan(name="files", path="book.txt"), "all")
    assert not list(FOLDER.parent.iterdir())


def test_prepare_corpus_removes_and_counts_sentences_that_tasks_test_on() -> None:
    prepare_corpus.main(plan(), "all")
    before = {split: read_jsonl(FOLDER / f"{split}.jsonl") for split in ("train", "validation")}
    assert "removed" not in read_json(FOLDER / "corpus.json")
    # One task tests on all sentences of a document, the other on one sentence and on none of them.
    emptied, tested = before["train"][0], before["validation"][1]["sentences"][0]
    searched = TaskTexts(write_tests(emptied["sentences"], [tested.upper(), "In none of them."]))
    prepare_corpus.main(plan("tasks"), "all")
    about = read_json(FOLDER / "corpus.json")
    for split, rows in before.items():
        left = read_jsonl(FOLDER / f"{split}.jsonl")
        sentences = {row["id"]: row["sentences"] for row in left}
        assert all(sentences.values())
        expected = searched.removed_from(row["sentences"] for row in rows)
        assert [*sentences.values()] == [document for document in expected if document]
        whole = [s for row in rows for s in row["sentences"]]
        sentences_left = [s for document in sentences.values() for s in document]
        assert about["removed"][split] == {
            "documents": len(rows) - len(left),
            "sentences": len(whole) - len(sentences_left),
            "characters": sum(map(len, whole)) - sum(map(len, sentences_left)),
        }
        assert about[split]["sentences"] == len(sentences_left) < len(whole)
        assert tested not in sentences_left
        assert searched.overlap(sentences.values())["one"].ngram == 0
    assert emptied["id"] not in [row["id"] for row in read_jsonl(FOLDER / "train.jsonl")]
    assert about["removed"]["train"]["documents"] >= 1
