"""A corpus holds its documents but none that is held out, and is the same every time."""

import gzip
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from stages import encode_corpus, prepare_corpus
from stages.core import parallel
from stages.core.artifacts import read_json, read_jsonl, write_json, write_jsonl
from stages.core.params import Corpus, Task, Tokenizer
from stages.core.plans import CorpusPlan, EncodingPlan
from stages.core.process import exit_on_mistake
from stages.evaluation.contamination import TaskTexts
from stages.sources._source import SOURCES, split_of
from tests.installed_package import install, module
from tests.small import small_tokenizer

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
    task = Task(task={"name": "classification"}, source=source, seed=1, **numbers)
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


@pytest.mark.slow
def test_prepare_corpus_repeats_itself_until_a_text_changes(
    folder: Path,
) -> None:
    prepare_corpus.main(plan(), "all")
    first = {p.name: p.read_bytes() for p in FOLDER.iterdir()}
    program = (
        "from tests.test_prepare_corpus import plan\n"
        "from stages import prepare_corpus\n"
        "prepare_corpus.main(plan(), 'all')\n"
    )
    paths = f"{folder / 'site'}{os.pathsep}{Path(__file__).parents[1]}"
    subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": paths},
    )
    assert {p.name: p.read_bytes() for p in FOLDER.iterdir()} == first
    before = read_json(FOLDER / "corpus.json")["sha256"]
    (folder / "site/shelf/room_0.py").write_text(module("maps", 0))
    prepare_corpus.main(plan(), "all")
    assert read_json(FOLDER / "corpus.json")["sha256"] != before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "corpora.all.source: no text for train; give it more documents"),
        ("One paragraph.", "corpora.all.source: no text for validation"),
    ],
)
def test_prepare_corpus_refuses_an_empty_corpus_and_leaves_nothing(text: str, message: str) -> None:
    Path("book.txt").write_text(text)
    with pytest.raises(ValueError, match=message):
        prepare_corpus.main(plan(name="files", path="book.txt"), "all")
    assert not FOLDER.exists() and not list(FOLDER.parent.iterdir())


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


@pytest.mark.slow
def test_prepare_corpus_refuses_a_corpus_that_is_all_tested_on() -> None:
    prepare_corpus.main(plan(), "all")
    rows = [
        row for split in ("train", "validation") for row in read_jsonl(FOLDER / f"{split}.jsonl")
    ]
    write_tests([], [s for row in rows for s in row["sentences"]])
    with pytest.raises(ValueError, match="no text for train that no task tests on; give it more"):
        prepare_corpus.main(plan("tasks"), "all")


# Text of any size -------------------------------------------------------------------------------

TEXTS = [
    " ".join(f"{w} stands on line {n}, Dr. {w}!" for w in ["Öl", "One", "Two"]) for n in range(90)
]


def write_texts(format: str) -> dict[str, Any]:
    """Writes several files, to be read in many parts; returns the settings of their source."""
    folder = Path("texts")
    folder.mkdir()
    for number in range(3):
        texts = [f"{text} Of {number}." for text in TEXTS]
        lines = {
            "txt": "".join(f"{t}\nand so on.\n{' ' * (i % 2)}\n" for i, t in enumerate(texts)),
            "jsonl": "".join(json.dumps({"text": text, "url": "x"}) + "\n" for text in texts),
            "csv": "text,other\n" + "".join(f'"{text}\nIt goes on.",1\n' for text in texts),
            "conllu": "".join(
                "".join(f"{i}\t{w}" + "\t_" * 8 + "\n" for i, w in enumerate(t.split(), 1)) + "\n"
                for t in texts
            ),
        }[format.removesuffix(".gz")]
        content = lines.encode()
        packed = gzip.compress(content) if format.endswith(".gz") else content
        (folder / f"{number}.{format}").write_bytes(packed)
    (folder / f"empty.{format}").write_bytes(b"text\n" if format == "csv" else b"")
    return {"name": "files", "path": "texts"}


def expected(source: dict[str, Any]) -> tuple[dict[str, str], str]:
    """Returns the files of both splits and the hash of their text, with everything held at once."""
    rows = {"train": [], "validation": [], "test": []}
    for document in SOURCES.build(source, where="").documents():
        rows[document.split].append({"id": document.id, "sentences": document.sentences})
    digest = hashlib.sha256()
    for split in ("train", "validation"):
        sentences = [sentence for row in rows[split] for sentence in row["sentences"]]
        digest.update("\n".join([split, *sentences, ""]).encode())
    written = {
        f"{split}.jsonl": "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows[split])
        for split in ("train", "validation")
    }
    return written, digest.hexdigest()


UNITS = [("txt", unit) for unit in ("paragraph", "line", "file")] + [("txt.gz", "paragraph")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "unit"), [*UNITS, ("jsonl", ""), ("jsonl.gz", ""), ("csv", ""), ("conllu", "")]
)
def test_write_in_parts_gives_what_the_whole_does(format: str, unit: str, monkeypatch) -> None:
    monkeypatch.setattr(parallel, "PART_BYTES", 600)
    monkeypatch.setattr(parallel, "HERE_BYTES", 2000)
    source = write_texts(format) | ({"unit": unit} if unit else {})
    if unit == "file":  # each of three files is a split
        names = sorted(p.name for p in Path("texts").iterdir())
        source |= dict(zip(("train", "validation", "test"), names, strict=False))
    rows, digest = expected(source)
    built = SOURCES.build(source, where="")
    assert len(list(built.parts())) > (2 if unit == "file" else 30)
    for processes in (1, 3):
        folder = Path(f"with_{processes}")
        folder.mkdir()
        about = prepare_corpus.write(built, None, folder, processes=processes)
        assert {file.name: file.read_text() for file in folder.iterdir()} == rows
        assert about["sha256"] == digest
        assert about["train"]["documents"] == rows["train.jsonl"].count("\n")


@pytest.mark.slow
def test_write_removes_sentences_by_several_processes_as_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = SOURCES.build(write_texts("txt"), where="")
    texts = TaskTexts({"one": [[TEXTS[3]], ["Two stands on line 7, Dr. Two!"]]})
    monkeypatch.setattr(parallel, "PART_BYTES", 600)
    monkeypatch.setattr(parallel, "HERE_BYTES", 2000)
    written = []
    for processes in (1, 3):
        folder = Path(f"with_{processes}")
        folder.mkdir()
        about = prepare_corpus.write(source, texts, folder, processes=processes)
        written.append((about, {file.name: file.read_bytes() for file in folder.iterdir()}))
    assert written[0] == written[1]
    assert written[0][0]["removed"]["train"]["sentences"] > 5


def test_write_takes_a_long_document_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sentences are written in pieces."""
    monkeypatch.setattr(parallel, "PART_BYTES", 600)
    rows = [" ".join(TEXTS), *TEXTS]
    Path("book.txt").write_text("\n".join(rows))
    source = {"name": "files", "path": "book.txt", "unit": "line"}
    written, digest = expected(source)
    Path("out").mkdir()
    about = prepare_corpus.write(SOURCES.build(source, where=""), None, Path("out"))
    assert {file.name: file.read_text() for file in Path("out").iterdir()} == written
    assert about["sha256"] == digest


@pytest.mark.parametrize("format", ["txt", "jsonl"])
def test_prepare_corpus_names_bytes_that_are_no_text_and_leaves_nothing(
    format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "PART_BYTES", 600)
    monkeypatch.setattr(parallel, "HERE_BYTES", 600)
    source = write_texts(format)
    broken = Path("texts", f"1.{format}")
    lines = broken.read_bytes().splitlines(keepends=True)
    lines[40] = b"\xff" + lines[40]
    broken.write_bytes(b"".join(lines))
    with pytest.raises(ValueError, match=f"corpora.all.source: {broken} line 41: byte 0xff is not"):
        prepare_corpus.main(plan(**source), "all")
    assert not list(FOLDER.parent.iterdir())


@pytest.mark.parametrize("stage", ["prepare_corpus", "encode_corpus"])
def test_full_disk_is_named_and_nothing_is_left(stage: str, capsys) -> None:
    """A full disk is simulated by a limit on the size of files, past which writing fails."""
    Path("book.txt").write_text("".join(f"Line {i} of the book.\n" for i in range(5000)))
    (model,) = small_tokenizer().files
    Path("data/tokenizers/unigram").mkdir(parents=True)
    shutil.copy(model, "data/tokenizers/unigram")
    own = Tokenizer(corpus="all", vocab_size=600)
    prepared = plan(name="files", path="book.txt", unit="line")
    main = partial(prepare_corpus.main, prepared, "all")
    written = FOLDER.parent
    if stage == "encode_corpus":
        main()
        main = partial(
            encode_corpus.main,
            EncodingPlan(corpus=prepared.corpus, tokenizer=own, code={}),
            "all",
            "unigram",
        )
        written = Path("data/encoded/all")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(SystemExit, match="2"):
            exit_on_mistake(main)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert capsys.readouterr().err.startswith("error: ")
    assert not list(written.iterdir())
