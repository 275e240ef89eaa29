"""Likeness compares the encoded text with each task of the study."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import pytest

from stages import encode_corpus, measure_likeness
from stages.core.artifacts import read_json, write_json, write_jsonl
from stages.core.params import Corpus, Task, Tokenizer
from stages.core.plans import EncodingPlan, TextsPlan
from stages.evaluation import likeness
from stages.text.corpus import document_order
from tests.small import documents, small_tokenizer

DOCUMENTS = [list(document) for document in documents()[:12]]
TEXTS = [sentence for document in documents()[12:20] for sentence in document]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus, two tasks, and "old", a task of another study."""
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
    small_tokenizer().save_to(Path("data/tokenizers/unigram"))
    return tmp_path


def measured(max_tokens: int | Literal["all"]) -> dict[str, Any]:
    about = {"max_tokens": max_tokens, "train": {"documents": len(DOCUMENTS)}, "sha256": "abc"}
    write_json(Path("data/corpora/all/corpus.json"), about)
    corpus = Corpus(source={"name": "files"}, max_tokens=max_tokens, decontaminate_against="none")
    tokenizer = Tokenizer(corpus="all", vocab_size=300)
    plan = EncodingPlan(corpus=corpus, tokenizer=tokenizer, code={})
    encode_corpus.main(plan, "all", "unigram")
    numbers: dict[str, Any] = dict.fromkeys(("num_train", "num_validation", "num_test"), "all")
    task = Task(task={"name": "classification"}, source={"name": "files"}, seed=1, **numbers)
    tasks = TextsPlan(tasks=dict.fromkeys(("read", "tag"), task), code={})
    measure_likeness.main(tasks, "all", "unigram")
    return read_json(Path("data/likeness/all/unigram.json"))


def measure(documents: list[list[str]], tasks: dict[str, list[str]]) -> likeness.Measured:
    return likeness.measured(documents, tasks)


def test_measure_likeness_compares_tasks_with_all_documents() -> None:
    record = measured("all")
    encoded = read_json(Path("data/encoded/all/unigram/encoded.json"))
    tag = [" ".join(text.split()) for text in TEXTS]
    expected = measure(DOCUMENTS, {"read": TEXTS, "tag": tag})
    assert record == asdict(expected) | {"tokens": encoded["train_tokens"], "sha256": "abc"}
    assert expected.documents == len(DOCUMENTS)


def test_measure_likeness_leaves_out_what_max_tokens_leaves_out() -> None:
    for max_tokens in (2000, 6000):
        record = measured(max_tokens)
        number = record["documents"]
        kept = [DOCUMENTS[i] for i in document_order(len(DOCUMENTS), "train")[:number]]
        assert record["tokens"] == max_tokens and 0 < number < len(DOCUMENTS)
        expected = measure(kept, {"read": TEXTS}).tasks["read"]
        assert record["tasks"]["read"] == asdict(expected)
