"""What is measured is the text that was encoded, for each task of the study."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import pytest

from stages import encode_corpus, measure_likeness
from stages.core import parallel, paths
from stages.core.artifacts import read_json, write_json, write_jsonl
from stages.core.params import Corpus, Params, Tokenizer
from stages.evaluation.likeness import Comparison, Measured
from stages.text.corpus import document_order
from tests.small import documents, small_tokenizer

DOCUMENTS = [list(document) for document in documents()[:12]]
TEXTS = [sentence for document in documents()[12:20] for sentence in document]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus and two tasks; "old" is of another study."""
    monkeypatch.chdir(tmp_path)
    folder = Path("data/corpora/all")
    folder.mkdir(parents=True)
    rows = [{"id": str(i), "sentences": sentences} for i, sentences in enumerate(DOCUMENTS)]
    write_jsonl(folder / "train.jsonl", rows)
    write_jsonl(folder / "validation.jsonl", rows[:1])
    tests = {
        "read": [{"text": text} for text in TEXTS],
        "tag": [{"words": text.split()} for text in TEXTS],
        "old": [{"text": "nothing"}],
    }
    for task, of_task in tests.items():
        examples = Path("data/tasks", task, "examples")
        examples.mkdir(parents=True)
        kind = "tagging" if "words" in of_task[0] else "classification"
        write_json(examples / "task.json", {"kind": kind})
        write_jsonl(examples / "test.jsonl", [{"id": task, **row} for row in of_task])
    (model,) = small_tokenizer().files
    Path("data/tokenizers/unigram").mkdir(parents=True)
    Path("data/tokenizers/unigram", model.name).write_bytes(model.read_bytes())
    return tmp_path


def measured(max_tokens: int | Literal["all"]) -> dict[str, Any]:
    about = {"max_tokens": max_tokens, "train": {"documents": len(DOCUMENTS)}, "sha256": "abc"}
    write_json(Path("data/corpora/all/corpus.json"), about)
    corpus = Corpus(source={"name": "files"}, max_tokens=max_tokens, decontaminate_against="none")
    tokenizer = Tokenizer(corpus="all", algorithm="unigram", vocab_size=300, max_sentences=100)
    params = Params.model_construct(
        corpora={"all": corpus},
        tokenizers={"unigram": tokenizer},
        tasks={"read": ..., "tag": ...},
    )
    encode_corpus.main(params, "all", "unigram")
    measure_likeness.main(params, "all", "unigram")
    return read_json(Path("data/likeness/all/unigram.json"))


def measure(documents: list[list[str]], tasks: dict[str, list[str]]) -> Measured:
    comparison = Comparison(tasks)
    return comparison.measured([comparison.read(documents)], Path("none"))


def test_tasks_of_the_study_are_compared_with_all_documents() -> None:
    found = measured("all")
    encoded = read_json(Path("data/encoded/all/unigram/encoded.json"))
    tag = [" ".join(text.split()) for text in TEXTS]
    expected = measure(DOCUMENTS, {"read": TEXTS, "tag": tag})
    assert found == asdict(expected) | {"tokens": encoded["train_tokens"], "sha256": "abc"}
    assert expected.documents == len(DOCUMENTS)


@pytest.mark.slow
def test_several_processes_measure_what_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    one = measured("all")
    monkeypatch.setattr(parallel, "PART_BYTES", 3_000)
    monkeypatch.setattr(parallel, "HERE_BYTES", 1)
    monkeypatch.setattr(parallel, "cores", lambda: 3)
    assert measured("all") == one
    assert not list(paths.SCRATCH.glob("words*"))


def test_documents_that_max_tokens_leaves_out_are_not_compared() -> None:
    for max_tokens in (2000, 6000):
        found = measured(max_tokens)
        number = found["documents"]
        kept = [DOCUMENTS[i] for i in document_order(len(DOCUMENTS), "train")[:number]]
        assert found["tokens"] == max_tokens and 0 < number < len(DOCUMENTS)
        expected = measure(kept, {"read": TEXTS}).tasks["read"]
        assert found["tasks"]["read"] == asdict(expected)
