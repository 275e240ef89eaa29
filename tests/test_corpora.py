"""The stages that read a corpus: what is held out, removed, cut and counted, in little memory."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest

from stages import encode_corpus, measure_contamination, prepare_corpus, train_tokenizer
from stages.core import paths
from stages.core.artifacts import Json, read_json, read_jsonl, write_jsonl
from stages.core.params import Corpus, TaskEntry, Tokenizer
from stages.core.plans import CorpusPlan, EncodingPlan, TextsPlan, TokenizerPlan
from stages.core.seeding import stream
from stages.evaluation.contamination import TaskTexts
from stages.sources._source import SOURCES
from stages.text.corpus import SPLITS, EncodedCorpus, StoredDocuments
from stages.text.tokenizer import Tokenizer as TrainedTokenizer
from tests.small import small_tokenizer
from tests.small_study import write_task
from tests.smoke import ROOT

FOLDER = Path("data/corpora/all")
ENCODED = Path("data/encoded/all/unigram")
# Two sentences of a document, of which no other shares eight words in a row.
DOCUMENTS = [
    [f"This is number n{i} of them, and n{i} times n{i} is a square.", f"It is not one of {i}."]
    for i in range(100, 180)
]
Amount = int | Literal["all"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("".join(f"{' '.join(lines)}\n" for lines in DOCUMENTS))


def corpus(max_tokens: Amount = "all", against: Literal["none", "tasks"] = "none") -> Corpus:
    source = {"name": "files", "path": "text.txt", "unit": "line"}
    return Corpus(source=source, max_tokens=max_tokens, decontaminate_against=against)


def entries(*tasks: str) -> dict[str, TaskEntry]:
    numbers: dict[str, Any] = dict.fromkeys(("num_train", "num_validation", "num_test"), "all")
    entry = {"task": {"name": "classification"}, "source": {"name": "files", "path": "rows.csv"}}
    return dict.fromkeys(tasks, TaskEntry(**entry, **numbers, seed=1))


def prepared(max_tokens: Amount = "all", tasks: tuple[str, ...] = ()) -> Json:
    """Prepares the corpus, decontaminated against ``tasks``; returns its summary."""
    settings = corpus(max_tokens, "tasks" if tasks else "none")
    against = entries(*tasks)
    plan = CorpusPlan(corpus=settings, packages="", decontaminated_against=against, code={})
    prepare_corpus.main(plan, "all")
    return read_json(FOLDER / "corpus.json")


def encoded(max_tokens: Amount = "all") -> Json:
    """Encodes the prepared corpus with the tokenizer of ``small``; returns the counts."""
    tokenizer = Path("data/tokenizers/unigram")
    if not tokenizer.exists():
        tokenizer.parent.mkdir(parents=True, exist_ok=True)
        small_tokenizer().save_to(tokenizer)
    prepared(max_tokens)
    settings = Tokenizer(corpus="all", vocab_size=300)
    plan = EncodingPlan(corpus=corpus(max_tokens), tokenizer=settings, code={})
    encode_corpus.main(plan, "all", "unigram")
    return read_json(ENCODED / "encoded.json")


def rows_of(split: str) -> list[Json]:
    return read_jsonl(FOLDER / f"{split}.jsonl")


def extent(documents: list[list[str]]) -> dict[str, int]:
    sentences = [sentence for document in documents for sentence in document]
    characters = sum(map(len, sentences))
    return {"documents": len(documents), "sentences": len(sentences), "characters": characters}


def write_tests(task: str, texts: list[str]) -> None:
    rows = [{"text": text, "label": "a"} for text in texts]
    write_task(task, rows, {"name": "classification"}, train=0, validation=0, test=len(rows))


def test_prepare_corpus_writes_the_documents_of_train_and_validation() -> None:
    """A second run writes equal bytes, until a text changes."""
    about = prepared()
    source = SOURCES.build(corpus().source, where="source")
    by_split = Counter(document.split for document in source.documents())
    for split in SPLITS:
        rows = rows_of(split)
        documents = [row["sentences"] for row in rows]
        assert about[split] == extent(documents) and len(rows) == by_split[split] > 0
        assert all(document in DOCUMENTS for document in documents)
    assert about["held_out_documents"] == by_split["test"] > 0
    assert "removed" not in about and about["versions"] == {}
    first = {p.name: p.read_bytes() for p in FOLDER.iterdir()}
    assert {*first} == {"corpus.json", "train.jsonl", "validation.jsonl"}
    prepared()
    assert {p.name: p.read_bytes() for p in FOLDER.iterdir()} == first
    text = Path("text.txt").read_text()
    Path("text.txt").write_text(text.replace("is not one", "was never one"))
    assert prepared()["sha256"] != about["sha256"]
    Path("text.txt").write_text("")
    with pytest.raises(ValueError, match=r"corpora\.all\.source: no text for train"):
        prepared()


def test_prepare_corpus_removes_and_counts_sentences_that_tasks_test_on() -> None:
    prepared()
    before = {split: [row["sentences"] for row in rows_of(split)] for split in SPLITS}
    emptied, tested = before["train"][0], before["validation"][1][0]
    tests = {"one": emptied, "other": [tested.upper(), "In none of them."]}
    for task, texts in tests.items():
        write_tests(task, texts)
    about = prepared(tasks=("one", "other"))
    searched = TaskTexts({task: [[text] for text in texts] for task, texts in tests.items()})
    for split, documents in before.items():
        left = [row["sentences"] for row in rows_of(split)]
        assert left == [document for document in searched.removed_from(documents) if document]
        whole, remaining = extent(documents), extent(left)
        assert about["removed"][split] == {name: whole[name] - remaining[name] for name in whole}
        assert about[split] == remaining and remaining["sentences"] < whole["sentences"]
        assert searched.overlap(left)["other"].ngram == 0
    assert emptied not in [row["sentences"] for row in rows_of("train")]
    assert about["removed"]["train"]["documents"] == 1
    # Documents from which nothing is left make no corpus.
    write_tests("every", [sentence for document in before["validation"] for sentence in document])
    with pytest.raises(ValueError, match="no text for validation that no task tests on"):
        prepared(tasks=("every",))


@pytest.mark.parametrize("max_sentences", [1, 50, 10**6])
def test_tokenizer_learns_from_a_sample_of_all_sentences(max_sentences: int) -> None:
    prepared()
    documents = StoredDocuments(FOLDER / "train.jsonl")
    sentences = [sentence for row in rows_of("train") for sentence in row["sentences"]]
    drawn = stream(train_tokenizer.SEED, "tokenizer").permutation(len(sentences))
    sample = train_tokenizer.sample(documents, max_sentences)
    assert sample == [sentences[i] for i in drawn[:max_sentences]]


def test_train_tokenizer_has_the_size_that_is_set_or_refuses_it() -> None:
    prepared()

    def trained(vocab_size: int) -> int:
        settings = Tokenizer(corpus="all", algorithm="bpe", vocab_size=vocab_size)
        train_tokenizer.main(TokenizerPlan(tokenizer=settings, code={}), "own")
        return TrainedTokenizer(Path("data/tokenizers/own")).vocab_size

    assert [trained(size) for size in (420, 440)] == [420, 440]
    with pytest.raises(ValueError, match=r"^tokenizers\.own\.vocab_size"):
        trained(10**5)


def test_encode_corpus_counts_tokens_documents_and_bytes() -> None:
    """``max_tokens`` cuts train alone. Bytes are those of the documents, an estimate where one may
    be cut."""
    whole = encoded()
    for split in SPLITS:
        loaded, rows = EncodedCorpus.load(ENCODED / split), rows_of(split)
        assert whole[f"{split}_tokens"] == len(loaded.tokens)
        assert whole[f"{split}_documents"] == len(loaded.document_starts) == len(rows)
        size = sum(len(sentence) for row in rows for sentence in row["sentences"])
        assert whole[f"{split}_bytes"] == pytest.approx(size, rel=0.02)
    assert whole["train_tokens"] > 4 * whole["validation_tokens"]
    cut = encoded(500)
    assert cut["train_tokens"] == 500 and 1 < cut["train_documents"] < whole["train_documents"]
    ratios = [counts["train_bytes"] / counts["train_tokens"] for counts in (whole, cut)]
    assert ratios[1] == pytest.approx(ratios[0], rel=0.02)
    assert cut["validation_tokens"] == whole["validation_tokens"]
    one = encoded(8)
    lengths = {sum(map(len, document)) for document in DOCUMENTS}
    assert one["train_documents"] == 1 and one["train_bytes"] in lengths
    with pytest.raises(ValueError, match=r"^corpora\.all\.max_tokens: the corpus has only"):
        encoded(whole["train_tokens"] + 1)
    assert encoded(whole["train_tokens"])["train_tokens"] == whole["train_tokens"]


def test_measure_contamination_counts_test_rows_in_what_is_encoded() -> None:
    """``every`` tests on a sentence of each document, ``some`` also on texts of no document and of
    validation, and on an n-gram. No document has the masked texts of ``masked``, but the originals
    of three rows; a row that is not changed has no original. ``old`` is no task of the study."""
    prepared()
    texts = [row["sentences"][0] for row in rows_of("train")]
    write_tests("every", texts)
    of_validation = rows_of("validation")[0]["sentences"][0]
    write_tests("some", [texts[3], of_validation, "Of none", f"So {texts[5][:-9]}"])
    write_tests("masked", [f"value {i} of the value" for i in range(5)])
    originals = [{"id": f"row {i}", "text": texts[i]} for i in (0, 2, 4)]
    write_jsonl(paths.test_originals("masked"), originals)
    write_tests("old", ["nothing"])
    plan = TextsPlan(tasks=entries("every", "some", "masked"), code={})

    def measured() -> Json:
        measure_contamination.main(plan, "all", "unigram")
        return read_json(paths.CONTAMINATION / "all/unigram.json")

    counts, number = encoded(), len(texts)
    assert measured() == {
        "documents": number,
        "tasks": {
            "every": {"num_test": number, "exact": number, "ngram": number},
            "some": {"num_test": 4, "exact": 1, "ngram": 2},
            "masked": {"num_test": 5, "exact": 3, "ngram": 3},
        },
        "removed": {},
        "tokens": counts["train_tokens"],
        "sha256": read_json(FOLDER / "corpus.json")["sha256"],
    }
    cut = encoded(500)
    record = measured()
    assert record["documents"] == cut["train_documents"] < number
    assert record["tasks"]["every"]["exact"] == record["documents"]
    assert record["tokens"] == 500


# Memory

NUM_BYTES = 24e6  # of text
# The peaks of all processes together, of which imported modules take up to 100, and transformers
# another 200 where tokens are encoded. The text in lists took 198 in prepare; its tokens as
# integers of Python took 13 times the text.
MOST_MB = {"prepare": 150, "encode": 420, "contamination": 150}
PROGRAM = """
import resource, sys
from pathlib import Path

from stages import encode_corpus, measure_contamination, prepare_corpus
from stages.core import parallel
from stages.core.params import Corpus, Tokenizer
from stages.core.plans import CorpusPlan, EncodingPlan, TextsPlan

parallel.cores = lambda: 2
source = {"name": "files", "path": "text.txt", "unit": "line"}
corpus = Corpus(source=source, max_tokens="all", decontaminate_against="none")
tokenizer = Tokenizer(corpus="all", algorithm="unigram", vocab_size=300, max_sentences=2000)
reading = CorpusPlan(corpus=corpus, packages="", decontaminated_against={}, code={})
encoding = EncodingPlan(corpus=corpus, tokenizer=tokenizer, code={})
comparing = TextsPlan.model_construct(tasks={"own": ...}, code={})
match sys.argv[1]:
    case "prepare":
        prepare_corpus.main(reading, "all")
    case "encode":
        encode_corpus.main(encoding, "all", "unigram")
    case "contamination":
        measure_contamination.main(comparing, "all", "unigram")

# Not ru_maxrss of this process, which may be that of the one that started it.
status = Path("/proc/self/status").read_text().split()
own = int(status[status.index("VmHWM:") + 1])
children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print((own + 2 * max(0, children - own / 2)) / 1e3)  # they share what they were forked with
"""


@pytest.mark.nightly
def test_each_stage_holds_a_part_of_the_corpus(tmp_path: Path) -> None:
    with Path("text.txt").open("w") as file:
        number = 0
        while file.tell() < NUM_BYTES:
            number += 9
            some = range(number, number + 9)
            lines = (f"It stands in line {i} of all, Mr. {i}! So it does." for i in some)
            file.write(" ".join(lines) + "\n")
    small_tokenizer().save_to(tmp_path / "data/tokenizers/unigram")
    write_tests("own", ["It stands in line 7 of all."])
    peaks = dict[str, float]()
    for stage in MOST_MB:
        command = [sys.executable, "-c", PROGRAM, stage]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        output = subprocess.run(command, check=True, capture_output=True, env=environment).stdout
        peaks[stage] = float(output.split()[-1])
    assert all(peaks[stage] < most for stage, most in MOST_MB.items()), peaks
