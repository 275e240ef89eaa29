"""Contamination is measured in the encoded text, for each task of the study."""

from pathlib import Path
from typing import Any, Literal

import pytest

from stages import encode_corpus, measure_contamination
from stages.core import paths
from stages.core.artifacts import read_json, write_json, write_jsonl
from stages.core.params import Corpus, TaskEntry, Tokenizer
from stages.core.plans import EncodingPlan, TextsPlan
from tests.small import small_tokenizer

NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
# No two share eight words in a row.
SENTENCES = [f"This is number {n} of them, and {n} times {n} is a square." for n in NUMBERS]
SOME = [SENTENCES[3], "It is tested on", f"So {SENTENCES[5][:-9]}"]  # the second: in validation


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A corpus with a document for each sentence, two tasks, and "old", a task of another study."""
    monkeypatch.chdir(tmp_path)
    folder = Path("data/corpora/all")
    folder.mkdir(parents=True)
    rows = [{"id": str(i), "sentences": [text]} for i, text in enumerate(SENTENCES)]
    write_jsonl(folder / "train.jsonl", rows)
    write_jsonl(folder / "validation.jsonl", [{"id": "v", "sentences": ["It is tested on."]}])
    tests = {
        "every": [{"text": text} for text in SENTENCES],
        "some": [{"words": text.split()} for text in SOME],
        "old": [{"text": "nothing"}],
    }
    for task, of_task in tests.items():
        paths.examples(task).mkdir(parents=True)
        kind = "tagging" if "words" in of_task[0] else "classification"
        write_json(paths.examples(task) / "task.json", {"kind": kind})
        numbered = [{"id": str(i), **row} for i, row in enumerate(of_task)]
        write_jsonl(paths.examples(task) / "test.jsonl", numbered)
        write_jsonl(paths.test_originals(task), [])
    small_tokenizer().save_to(Path("data/tokenizers/unigram"))


def measured(max_tokens: int | Literal["all"]) -> dict[str, Any]:
    """Returns what the stage measures of the corpus, encoded up to ``max_tokens``."""
    write_json(Path("data/corpora/all/corpus.json"), {"max_tokens": max_tokens, "sha256": "abc"})
    corpus = Corpus(source={"name": "files"}, max_tokens=max_tokens, decontaminate_against="none")
    tokenizer = Tokenizer(corpus="all", vocab_size=300)
    plan = EncodingPlan(corpus=corpus, tokenizer=tokenizer, code={})
    encode_corpus.main(plan, "all", "unigram")
    numbers: dict[str, Any] = dict.fromkeys(("num_train", "num_validation", "num_test"), "all")
    task = TaskEntry(task={"name": "classification"}, source={"name": "files"}, seed=1, **numbers)
    measure_contamination.main(
        TextsPlan(tasks={"every": task, "some": task}, code={}), "all", "unigram"
    )
    return read_json(paths.CONTAMINATION / "all/unigram.json")


def encoded() -> dict[str, int]:
    return read_json(Path("data/encoded/all/unigram/encoded.json"))


def test_measure_contamination_counts_rows_of_every_task() -> None:
    assert measured("all") == {
        "documents": 10,
        "tasks": {
            "every": {"num_test": 10, "exact": 10, "ngram": 10},
            "some": {"num_test": 3, "exact": 1, "ngram": 2},
        },
        "removed": {},
        "tokens": encoded()["train_tokens"],
        "sha256": "abc",
    }


def test_measure_contamination_leaves_out_what_max_tokens_leaves_out() -> None:
    """Each document holds one test row, so that as many rows match as documents were encoded."""
    record = measured(90)
    assert record["documents"] == encoded()["train_documents"] < 10
    assert record["tasks"]["every"]["exact"] == record["documents"]


def test_measure_contamination_searches_original_texts() -> None:
    """No document has the masked texts, and a row that is not changed has no original."""
    masked = [{"id": str(i), "text": f"value {i} of the value"} for i in range(len(SENTENCES))]
    write_jsonl(paths.examples("every") / "test.jsonl", masked)
    originals = [{"id": str(i), "text": SENTENCES[i]} for i in (0, 2, 7)]
    write_jsonl(paths.test_originals("every"), originals)
    of_task = measured("all")["tasks"]["every"]
    assert of_task == {"num_test": 10, "exact": 3, "ngram": 3}
