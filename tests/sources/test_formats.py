"""Questions, translations, parquet files and archives in their published formats."""

import gzip
import json
from pathlib import Path
from typing import cast

import pyarrow
import pyarrow.parquet
import pytest

from stages.kinds._kind import KINDS
from stages.sources._source import SOURCES
from stages.sources.files import Files

CONTEXT = "Ada wrote the first program. Bob did not."
ADA = {"text": "Ada", "answer_start": 0}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def source(path: str, **settings) -> Files:
    return cast(
        Files, SOURCES.build({"name": "files", "path": path, **settings}, where="tasks.own.source")
    )


def rows(path: str, kind: str, **settings) -> list[dict]:
    return [e.row for e in source(path, **settings).examples(KINDS[kind])]


# Questions


def squad(*questions: dict, context: str = CONTEXT) -> str:
    paragraph = {"context": context, "qas": list(questions)}
    return json.dumps({"version": "1.1", "data": [{"title": "Ada", "paragraphs": [paragraph]}]})


def question(id: str = "q1", answers: list | None = None, **more) -> dict:
    return {"id": id, "question": "Who wrote it?", "answers": answers or [ADA], **more}


def test_questions_as_squad_has_them() -> None:
    unanswerable = question("q2", is_impossible=True, plausible_answers=[ADA])
    Path("a.json").write_text(squad(question(answers=[ADA, ADA]), unanswerable))
    examples = list(source("a.json").examples(KINDS["span_qa"]))
    assert [e.id for e in examples] == ["a.json:q1", "a.json:q2"]
    row = {"question": "Who wrote it?", "context": CONTEXT}
    assert [e.row for e in examples] == [row | {"answers": [ADA, ADA]}, row | {"answers": []}]
    assert len(rows("a.json", "span_qa", unanswerable="drop")) == 1


def test_questions_in_other_formats() -> None:
    """Rows in a user's format and in the hub's; the names of columns are settings."""
    own = {"ask": "Who?", "passage": CONTEXT, "spans": [ADA | {"more": 1}]}
    hub = own | {"spans": {"text": ["Ada"], "answer_start": [0]}}
    Path("a.jsonl").write_text(f"{json.dumps(own)}\n{json.dumps(hub)}\n")
    first, second = rows("a.jsonl", "span_qa", question="ask", context="passage", answers="spans")
    assert first == second == {"question": "Who?", "context": CONTEXT, "answers": [ADA]}


def test_questions_about_one_context_are_drawn_to_one_split() -> None:
    paragraphs = [
        {"context": f"{CONTEXT} {i}", "qas": [question(f"{i}-{j}") for j in range(3)]}
        for i in range(60)
    ]
    Path("a.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    splits: dict[str, set[str]] = {}
    for example in source("a.json").examples(KINDS["span_qa"]):
        splits.setdefault(example.row["context"], set()).add(example.split)
    assert {len(found) for found in splits.values()} == {1}
    assert {split for found in splits.values() for split in found} == {
        "train",
        "validation",
        "test",
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            squad(question(), question("q7", [{"text": "Bob", "answer_start": 28}])),
            "a.json question q7: answers: 'Bob' is not in the context at character 28; the "
            "context has ' Bo'",
        ),
        (squad(question(answers=[{"text": "Ada", "answer_start": -41}])), "at character -41"),
        (squad(question(answers=[{"text": "", "answer_start": 0}])), "'' is not in the context"),
        (squad(question(answers=[{"text": "Ada"}])), "question q1: answers must be a list of {"),
        (squad(question(answers=["Ada"])), "question q1: answers must be a list of {"),
        (squad({"id": "q3", "question": "Who?"}), "question q3: answers must be a list"),
        (squad({"id": "q3", "answers": [ADA]}), "question q3: question must be a text"),
        (squad(question(), context=" "), "question q1: context is empty"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', "data[0].paragraphs[0]: context must be a"),
        ('{"data": [{"title": "x"}]}', "a.json data[0]: paragraphs must be a list, as in SQuAD's"),
        ('{"rows": []}', 'must be a list of objects, or {"data": [...]}'),
    ],
)
def test_mistakes_in_questions_are_named(content: str, message: str) -> None:
    Path("a.json").write_text(content)
    with pytest.raises(ValueError) as error:
        rows("a.json", "span_qa")
    assert message in str(error.value)


# Translations


def write_parallel(english: list[str], german: list[str]) -> None:
    Path("train.en").write_text("\n".join(english))
    Path("train.de.gz").write_bytes(gzip.compress("\r\n".join(german).encode()))


def test_lines_of_two_files_are_texts_and_targets() -> None:
    write_parallel(["A dog.", "Two men."], ["Ein Hund.", "Zwei Männer."])
    both = {"format": "parallel", "train": "train"}
    assert rows(".", "seq2seq", **both, text="en", target="de") == [
        {"text": "A dog.", "target": "Ein Hund."},
        {"text": "Two men.", "target": "Zwei Männer."},
    ]
    assert rows(".", "seq2seq", **both, text="de", target="en")[0]["text"] == "Ein Hund."


@pytest.mark.parametrize(
    ("english", "german", "message"),
    [
        (["A", "B"], ["A"], "train.de.gz has 1 lines, but train.en has more"),
        (["A"], ["A", "B", "C"], "train.en has 1 lines, but train.de.gz has more"),
        (["A", "B"], ["A", " ", "C"], "train line 2: de is empty"),
    ],
)
def test_mistakes_in_translations_are_named(
    english: list[str], german: list[str], message: str
) -> None:
    write_parallel(english, german)
    with pytest.raises(ValueError, match=message):
        rows(".", "seq2seq", format="parallel", train="train", text="en", target="de")


def test_a_missing_side_and_bytes_that_are_not_utf8() -> None:
    write_parallel(["A"], ["A"])
    settings = {"format": "parallel", "train": "train", "text": "en"}
    with pytest.raises(ValueError, match="source: train: no such file: train.fr, nor train.fr.gz"):
        source(".", **settings, target="fr")
    Path("train.en").write_bytes(b"caf\xe9\n")
    with pytest.raises(ValueError, match="^train.en line 1: byte 0xe9 is not UTF-8"):
        rows(".", "seq2seq", **settings, target="de")


# The rest


def test_parquet_holds_what_jsonl_does() -> None:
    items = [{"words": ["Ada", "wrote"], "tags": ["B-PER", "O"]}, {"words": ["x"], "tags": ["O"]}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(items), "a.parquet")
    Path("a.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    assert rows("a.parquet", "tagging") == rows("a.jsonl", "tagging") == items
    with pytest.raises(ValueError, match="^a.parquet row 1: no column 'text'; there are: words"):
        rows("a.parquet", "classification")


def test_a_field_of_a_column_of_objects() -> None:
    Path("a.jsonl").write_text('{"translation": {"en": "A dog.", "de": "Ein Hund."}}\n')
    translations = rows("a.jsonl", "seq2seq", text="translation.en", target="translation.de")
    assert translations == [{"text": "A dog.", "target": "Ein Hund."}]
    with pytest.raises(ValueError, match="line 1: no column 'translation.fr'; there are: trans"):
        rows("a.jsonl", "seq2seq", text="translation.en", target="translation.fr")


def test_marks_of_documents_are_no_words() -> None:
    lines = "-DOCSTART- -X- O\n\nAda NNP I-PER\nBob NNP B-PER\n\n-DOCSTART- -X- O\n\nso RB O\n"
    Path("a.conll").write_text(lines)
    columns = ["words", "pos", "tags"]
    assert rows("a.conll", "tagging", columns=columns, tag_scheme="iob1") == [
        {"words": ["Ada", "Bob"], "tags": ["B-PER", "B-PER"]},
        {"words": ["so"], "tags": ["O"]},
    ]


def test_a_split_of_several_files() -> None:
    for name in "abc":
        Path(f"{name}.csv").write_text(f"text,label\nFilm {name}.,1\n")
    named = source(".", train=["a.csv", "c.csv"], validation="b.csv", test="none")
    splits = {e.id: e.split for e in named.examples(KINDS["classification"])}
    assert splits.keys() == {"a.csv:2", "b.csv:2", "c.csv:2"}
    assert splits["b.csv:2"] == "validation" and splits["a.csv:2"] != "validation"


def test_tagged_words_are_a_corpus() -> None:
    Path("a.conll").write_text("Ada\tO\nwrote\tO\n\nBob\tO\n")
    assert [d.sentences for d in source("a.conll").documents()] == [["Ada wrote"], ["Bob"]]


# Delimiters


@pytest.mark.parametrize(
    ("name", "delimiter", "sign"),
    [("a.csv", "semicolon", ";"), ("a.csv", "tab", "\t"), ("a.tsv", "bar", "|")],
)
def test_the_columns_of_a_table_stand_between_other_signs(
    name: str, delimiter: str, sign: str
) -> None:
    Path(name).write_text(f"text{sign}label\nodd, too{sign}x\n")
    assert rows(name, "classification", delimiter=delimiter) == [{"text": "odd, too", "label": "x"}]
    with pytest.raises(ValueError, match="delimiter"):
        rows(name, "classification")
