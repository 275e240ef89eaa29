"""Contamination is measured in the encoded text, for each task of the study."""

from pathlib import Path
from typing import Any, Literal

import pytest

from stages import encode_corpus, measure_contamination
from stages.core import paths
from stages.core.artifacts import read_json, write_json, write_jsonl
from stages.core.params import Corpus, Task, Tokenizer
from stages.core.plans import EncodingPlan, TextsPlan
from tests.small import small_tokenizer

NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
# No two share eight words in a row.
SENTENCES = [f"This is number {n} of them, and {n} times {n} is a square." for n in NUMBERS]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus with a document for each sentence, two tasks, and "old", a task of another study."""
    monkeypatch.chdir(tmp_path)
    folder = Path("data/corpora/all")
    folder.mkdir(parents=True)
    rows = [{"id": str(i), "sentences": [text]} for i, text in enumerate(SENTENCES)]
    write_jsonl(folder / "train.jsonl", rows)
    write_jsonl(folder / "validation.jsonl", [{"id": "v", "sentences": ["It is tested on."]}])
    tests = {
        "every": [{"text": text} for text in SENTENCES],
        "some": [
            {"words": SENTENCES[3].split()},
            {"words": ["It", "is", "tested", "on"]},  # in validation alone
            {"words": f"So {SENTENCES[5][:-9]}".split()},
        ],
        "old": [{"text": "nothing"}],
    }
    for task, of_task in tests.items():
        examples = Path("data/tasks", task, "examples")
        examples.mkdir(parents=True)
        kind = "tagging" if "words" in of_task[0] else "classification"
        write_json(examples / "task.json", {"kind": kind})
        numbered = [{"id": str(i), **row} for i, row in enumerate(of_task)]
        write_jsonl(examples / "test.jsonl", numbered)
        write_jsonl(paths.test_originals(task), [])
    small_tokenizer().save_to(Path("data/tokenizers/unigram"))
    return tmp_path


def measured(max_tokens: int | Literal["all"], **about: Any) -> dict[str, Any]:
    write_json(Path("data/corpora/all/corpus.json"), {"max_tokens": max_tokens, **about})
    corpus = Corpus(source={"name": "files"}, max_tokens=max_tokens, decontaminate_against="none")
    tokenizer = Tokenizer(corpus="all", vocab_size=300)
    plan = EncodingPlan(corpus=corpus, tokenizer=tokenizer, code={})
    encode_corpus.main(plan, "all", "unigram")
    numbers: dict[str, Any] = dict.fromkeys(("num_train", "num_validation", "num_test"), "all")
    task = Task(task={"name": "classification"}, source={"name": "files"}, seed=1, **numbers)
    tasks = TextsPlan(tasks=dict.fromkeys(("every", "some"), task), code={})
    measure_contamination.main(tasks, "all", "unigram")
    return read_json(Path("data/contamination/all/unigram.json"))


def test_measure_contamination_counts_rows_of_every_task() -> None:
    assert measured("all") == {
        "documents": 10,
        "tasks": {
            "every": {"num_test": 10, "exact": 10, "ngram": 10},
            "some": {"num_test": 3, "exact": 1, "ngram": 2},
        },
        "removed": {},
    }


def test_measure_contamination_leaves_out_what_max_tokens_leaves_out() -> None:
    """Each document holds one test row, so that as many rows match as documents were encoded."""
    encoded = Path("data/encoded/all/unigram/encoded.json")
    for max_tokens in (30, 90):
        record = measured(max_tokens)
        assert record["documents"] == read_json(encoded)["train_documents"] < 10
        assert record["tasks"]["every"]["exact"] == record["documents"]


def test_measure_contamination_searches_original_texts() -> None:
    """No document has the masked texts, and a row that is not changed has no original."""
    masked = [{"id": str(i), "text": f"value {i} of the value"} for i in range(len(SENTENCES))]
    write_jsonl(paths.examples("every") / "test.jsonl", masked)
    assert measured("all")["tasks"]["every"]["ngram"] == 0
    originals = [{"id": str(i), "text": SENTENCES[i]} for i in (0, 2, 7)]
    write_jsonl(paths.test_originals("every"), originals)
    assert measured("all")["tasks"]["every"] == {"num_test": 10, "exact": 3, "ngram": 3}
