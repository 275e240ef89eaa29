"""A corpus holds its documents, none that is held out, and is the same every time."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

from stages import prepare_corpus
from stages.core.artifacts import read_json, read_jsonl, write_json, write_jsonl
from stages.core.params import Corpus, Params
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


def params(against: Literal["none", "tasks"] = "none", **source: Any) -> Params:
    """The part of params.yaml that the stage reads."""
    corpus = Corpus(source=source or SHELF, max_tokens="all", decontaminate_against=against)
    return Params.model_construct(corpora={"all": corpus}, tasks={"one": ..., "other": ...})


def write_tests(*of_tasks: list[str]) -> dict[str, list[list[str]]]:
    """The texts of the test rows of the two tasks."""
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


def test_a_corpus_holds_the_documents_of_train_and_validation() -> None:
    prepare_corpus.main(params(), "all")
    about = read_json(FOLDER / "corpus.json")
    for split in ("train", "validation"):
        found = read_jsonl(FOLDER / f"{split}.jsonl")
        assert [row["id"] for row in found] == [f for f in sorted(FILES) if split_of(f) == split]
        assert about[split] == {
            "documents": len(found),
            "sentences": sum(len(row["sentences"]) for row in found),
            "characters": sum(len(s) for row in found for s in row["sentences"]),
        }
    assert about["held_out_documents"] == sum(split_of(file) == "test" for file in FILES) > 0
    assert about["versions"] == {"shelf": "1.2"}
    assert sorted(p.name for p in FOLDER.iterdir()) == [
        *("corpus.json", "train.jsonl", "validation.jsonl"),
    ]


@pytest.mark.slow
def test_twice_is_the_same_whatever_the_hash_seed(folder: Path) -> None:
    prepare_corpus.main(params(), "all")
    first = {p.name: p.read_bytes() for p in FOLDER.iterdir()}
    program = (
        "from tests.test_prepare_corpus import params\n"
        "from stages import prepare_corpus\n"
        "prepare_corpus.main(params(), 'all')\n"
    )
    paths = f"{folder / 'site'}{os.pathsep}{Path(__file__).parents[1]}"
    subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": paths},
    )
    assert {p.name: p.read_bytes() for p in FOLDER.iterdir()} == first


def test_the_hash_is_of_the_texts(folder: Path) -> None:
    prepare_corpus.main(params(), "all")
    before = read_json(FOLDER / "corpus.json")["sha256"]
    (folder / "site/shelf/room_0.py").write_text(module("maps", 0))
    prepare_corpus.main(params(), "all")
    assert read_json(FOLDER / "corpus.json")["sha256"] != before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "corpora.all.source: no text for train; give it more documents"),
        ("One paragraph.", "corpora.all.source: no text for validation"),
    ],
)
def test_an_empty_corpus_is_refused_and_leaves_nothing(text: str, message: str) -> None:
    Path("book.txt").write_text(text)
    with pytest.raises(ValueError, match=message):
        prepare_corpus.main(params(name="files", path="book.txt"), "all")
    assert not FOLDER.exists() and not list(FOLDER.parent.iterdir())


def test_sentences_that_tasks_test_on_are_removed_and_counted() -> None:
    prepare_corpus.main(params(), "all")
    before = {split: read_jsonl(FOLDER / f"{split}.jsonl") for split in ("train", "validation")}
    assert "removed" not in read_json(FOLDER / "corpus.json")
    # All of a document's sentences, one sentence of a task that is not the first, and no sentence.
    emptied, tested = before["train"][0], before["validation"][1]["sentences"][0]
    searched = TaskTexts(write_tests(emptied["sentences"], [tested.upper(), "In none of them."]))
    prepare_corpus.main(params("tasks"), "all")
    about = read_json(FOLDER / "corpus.json")
    for split, rows in before.items():
        left = read_jsonl(FOLDER / f"{split}.jsonl")
        sentences = {row["id"]: row["sentences"] for row in left}
        assert all(sentences.values())
        expected = searched.removed_from(row["sentences"] for row in rows)
        assert [*sentences.values()] == [document for document in expected if document]
        whole = [s for row in rows for s in row["sentences"]]
        kept = [s for found in sentences.values() for s in found]
        assert about["removed"][split] == {
            "documents": len(rows) - len(left),
            "sentences": len(whole) - len(kept),
            "characters": sum(map(len, whole)) - sum(map(len, kept)),
        }
        assert about[split]["sentences"] == len(kept) < len(whole)
        assert tested not in kept
        assert searched.overlap(sentences.values())["one"].ngram == 0
    assert emptied["id"] not in [row["id"] for row in read_jsonl(FOLDER / "train.jsonl")]
    assert about["removed"]["train"]["documents"] >= 1


@pytest.mark.slow
def test_a_corpus_that_is_all_tested_on_is_refused() -> None:
    prepare_corpus.main(params(), "all")
    rows = [
        row for split in ("train", "validation") for row in read_jsonl(FOLDER / f"{split}.jsonl")
    ]
    write_tests([], [s for row in rows for s in row["sentences"]])
    with pytest.raises(ValueError, match="no text for train that no task tests on; give it more"):
        prepare_corpus.main(params("tasks"), "all")


def test_an_unknown_corpus_is_named() -> None:
    with pytest.raises(ValueError, match="corpora: unknown 'al'; did you mean 'all'?"):
        prepare_corpus.main(params(), "al")
