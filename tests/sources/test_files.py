"""The user's files are read unchanged, and a mistake is reported with its file and line."""

import csv
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from stages.kinds._kind import KINDS
from stages.sources._source import SOURCES, split_of
from stages.sources.files import Files


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, content: str | bytes) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def source(path: str, **settings) -> Files:
    return cast(
        Files, SOURCES.build({"name": "files", "path": path, **settings}, where="tasks.own.source")
    )


def rows(path: str, kind: str = "classification", **settings) -> list[dict]:
    return [e.row for e in source(path, **settings).examples(KINDS[kind])]


# Corpora


@pytest.mark.parametrize("name", ["book.txt", "book.txt.gz"])
@pytest.mark.parametrize(
    ("unit", "documents"),
    [
        ("paragraph", [["One.", "Two goes\ton."], ["Three."]]),
        ("line", [["One.", "Two goes"], ["on."], ["Three."]]),
        ("file", [["One.", "Two goes on.", "Three."]]),
    ],
)
def test_units_of_a_text(name: str, unit: str, documents: list[list[str]]) -> None:
    write(name, "\ufeff\nOne.  Two goes\r\non.\r\n \r\n\r\nThree.")
    texts = [d.sentences for d in source(name, unit=unit).documents()]
    assert texts == [[s.replace("\t", " ") for s in d] for d in documents]


def test_a_folder_of_texts_in_the_order_of_their_names() -> None:
    write("books/b.txt", "The second book.")
    write("books/a/one.txt", "The first book.")
    write("books/.hidden.txt", "No book.")
    write("books/cover.png", b"\x89PNG")
    assert [(d.id, d.sentences) for d in source("books").documents()] == [
        ("a/one.txt:1", ["The first book."]),
        ("b.txt:1", ["The second book."]),
    ]


def test_the_split_of_a_text_does_not_depend_on_what_else_there_is() -> None:
    for i in range(30):
        write(f"books/{i}.txt", f"Book number {i}.\n\nIt has {i} pages.")
    before = {tuple(d.sentences): d.split for d in source("books").documents()}
    whole = {d.id: d.split for d in source("books", unit="file").documents()}
    write("books/000.txt", "Another book.")
    after = {tuple(d.sentences): d.split for d in source("books").documents()}
    assert len(before) == 60 and before.items() <= after.items()
    assert whole == {f"{i}.txt:1": split_of(f"{i}.txt") for i in range(30)}


def test_named_splits() -> None:
    write("books/a.txt", "\n\n".join(f"Paragraph {i} of a." for i in range(200)))
    write("books/b.txt", "A paragraph of b.")
    named = source("books", train="a.txt", validation="b.txt").documents()
    counts = Counter((d.id.split(":")[0], d.split) for d in named)
    assert counts["b.txt", "validation"] == 1 and counts["a.txt", "validation"] == 0
    assert counts["a.txt", "train"] > 160 and counts["a.txt", "test"] > 5


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_column_is_a_corpus_too(name: str) -> None:
    """Each row is a document; a row without text is none."""
    csv, jsonl = 'text\n"One. Two."\n" "\n', '{"text": "One. Two."}\n{"text": ""}\n'
    write(name, csv if name == "a.csv" else jsonl)
    assert [d.sentences for d in source(name).documents()] == [["One.", "Two."]]


# Tasks


@examples(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), min_size=1)
            .filter(str.strip)
            .filter(lambda text: text[0] != "\ufeff"),
            st.sampled_from(["good", "b,ad", 'so "so"']),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_formats_hold_the_same_rows(table: list[tuple[str, str]]) -> None:
    with open("a.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *table])
    items = [{"text": text, "label": label} for text, label in table]
    write("a.jsonl", "".join(json.dumps(item) + "\n" for item in items))
    write("a.json.gz", json.dumps(items, ensure_ascii=False))
    assert rows("a.csv") == rows("a.jsonl") == rows("a.json.gz") == items


def test_columns_by_name_and_without_a_header() -> None:
    write("pairs.csv", "id,first,second,gold\n1,A cat.,A dog.,0\n")
    named = rows("pairs.csv", text="first", text_pair="second", label="gold")
    assert named == [{"text": "A cat.", "text_pair": "A dog.", "label": "0"}]
    write("plain.tsv", 'a "quoted film\t1\nanother\t0\n')
    assert rows("plain.tsv", columns=["text", "label"]) == [
        {"text": 'a "quoted film', "label": "1"},
        {"text": "another", "label": "0"},
    ]


def test_tagged_words() -> None:
    write("a.conll", "The\tO\nEmpire\tB-place\n\t\n\nHere\tO\n")
    assert rows("a.conll", "tagging") == [
        {"words": ["The", "Empire"], "tags": ["O", "B-place"]},
        {"words": ["Here"], "tags": ["O"]},
    ]
    write("b.conll", "The DT O\nEmpire NNP B-place\n")
    assert rows("b.conll", "tagging", columns=["words", "pos", "tags"]) == [
        {"words": ["The", "Empire"], "tags": ["O", "B-place"]}
    ]
    write(
        "c.conllu",
        "# text = don't\n1-2\tdon't" + "\t_" * 8 + "\n1\tdo\tdo\tAUX\tVB" + "\t_" * 5
        + "\n2\tn't\tnot\tPART\tRB" + "\t_" * 5 + "\n2.1\tgo\tgo\tVERB\tVB" + "\t_" * 5 + "\n\n",
    )  # fmt: skip
    assert rows("c.conllu", "tagging") == [{"words": ["do", "n't"], "tags": ["AUX", "PART"]}]
    assert rows("c.conllu", "tagging", tags="XPOS") == [
        {"words": ["do", "n't"], "tags": ["VB", "RB"]}
    ]


def test_equal_inputs_are_drawn_to_the_same_split() -> None:
    table = [f"text {i % 50},{i % 2}" for i in range(100)]
    write("a.csv", "text,label\n" + "\n".join(table))
    examples = list(source("a.csv").examples(KINDS["classification"]))
    assert [e.split for e in examples[:50]] == [e.split for e in examples[50:]]
    assert len({e.id for e in examples}) == 100


def test_blanks_around_a_label_make_no_other_class() -> None:
    write("a.csv", "text,label\n one , good\ntwo,good \n")
    labelled = [e.row for e in source("a.csv").examples(KINDS["classification"])]
    assert labelled == [{"text": " one ", "label": "good"}, {"text": "two", "label": "good"}]


def test_rows_that_lack_a_cell_are_left_out_if_asked() -> None:
    """A row whose labels may be empty is kept."""
    write("a.csv", "text,label\nx,1\n ,0\ny,\nz,0\n")
    remaining = [
        e.row for e in source("a.csv", empty_cells="skip").examples(KINDS["classification"])
    ]
    assert remaining == [{"text": "x", "label": "1"}, {"text": "z", "label": "0"}]
    write("b.csv", "text,labels\nx,a\n,a\ny,\n")
    remaining = [e.row for e in source("b.csv", empty_cells="skip").examples(KINDS["multi_label"])]
    assert remaining == [{"text": "x", "labels": ["a"]}, {"text": "y", "labels": []}]
    with pytest.raises(ValueError, match="empty_cells: input should be 'refuse' or 'skip'"):
        source("a.csv", empty_cells="drop")


# Mistakes


@pytest.mark.parametrize(
    ("name", "content", "settings", "message"),
    [
        ("a.csv", "text,gold\nx,1\n", {}, "a.csv line 2: no column 'label'; there are: text, gold"),
        ("a.csv", "x,1\ny,2\n", {}, "there are: x, 1; if its first line names none, give their"),
        ("a.csv", "text,label\nx,1\n ,0\n", {}, "a.csv line 3: text is empty"),
        ("a.csv", 'text,label\n"x\ny",1\nz,\n', {}, "a.csv line 4: label is empty"),
        ("a.csv", "text,label\nx,1,2\n", {}, "a.csv line 2: 3 cells, but 2 columns: text, label"),
        ("a.csv", 'text,label\n"x,1\n', {}, "a.csv line 2: unexpected end of data"),
        ("a.csv", b"text,label\nx\xe9,1\n", {}, "a.csv line 2: byte 0xe9 is not UTF-8"),
        ("a.csv", "", {}, "a.csv line 1: the file is empty"),
        (
            "a.csv",
            "text;label\nx;1\n",
            {},
            "line 1: one column, 'text;label'; a csv file has commas",
        ),
        ("a.csv", "text,label,text\nx,1,y\n", {}, "a.csv line 1: two columns have the name 'text'"),
        ("a.jsonl", '{"text": "x"}\n', {}, "a.jsonl line 1: no column 'label'; there are: text"),
        ("a.jsonl", '\n{"text": \n', {}, "a.jsonl line 2: not JSON: "),
        ("a.jsonl", '{"text": ["x"], "label": 1}', {}, "line 1: text must be a text, not ['x']"),
        ("a.jsonl", '{"text": "x", "label": NaN}', {}, "a.jsonl line 1: label is empty"),
        ("a.json", '[{"text": "x", "label": 1}, 2]', {}, "a.json object 2: must be an object with"),
        ("a.parquet", b"PAR1", {}, "a.parquet: no whole parquet file: "),
        ("data/a.csv", "x", {"train": ["a.csv", "a.csv"]}, "train: a.csv already belongs to train"),
        (
            "data/a.csv",
            "x",
            {"train": "a.csv", "test": "a.csv"},
            "test: a.csv already belongs to train",
        ),
        ("data/a.csv", "x", {"format": "parallel"}, "train: name what parallel files begin with"),
        ("a.jsonl", "[1]\n", {}, "a.jsonl line 1: must be an object with the columns, not [1]"),
        ("a.jsonl", '{"text": "x", "label": null}', {}, "a.jsonl line 1: label is empty"),
        ("a.json", '[\n{"text" 1}]', {}, "a.json line 2: not JSON: "),
        ("a.json", "{}", {}, "a.json line 1: must be a list of objects"),
        ("a.csv.gz", b"", {}, "a.csv.gz line 1: the file is empty"),
        ("a.txt", "Text.", {}, "a.txt: a txt file has no labels"),
        ("a.dat", "x\t1\n", {}, "format: name it, since a.dat does not end in one of txt, csv"),
        ("a.csv", "text,label\nx,1\n", {"train": "b.csv"}, "path: a.csv is a file, but splits"),
        ("data/a.csv", "text,label\nx,1\n", {"test": "a.csv"}, "train: name its file too"),
        ("data/a.csv", "text,label\n", {"train": "b.csv"}, "did you mean 'a.csv'?"),
        (
            "data/a.png",
            "",
            {},
            "path: no txt/csv/tsv/jsonl/json/conll/conllu/parquet file is in data",
        ),
    ],
)
def test_mistakes_are_named(name: str, content: str | bytes, settings: dict, message: str) -> None:
    write(name, content)
    with pytest.raises(ValueError) as error:
        rows(name.split("/")[0], **settings)
    assert message in str(error.value)


CONTEXT = "Ada wrote a program."


@pytest.mark.parametrize(
    ("name", "content", "settings", "message"),
    [
        ("a.conll", "The\tO\nEmpire\n", {}, "a.conll line 2: 1 cells, but 2 columns: words, tags"),
        ("a.jsonl", '{"words": ["x"], "tags": []}', {}, "a.jsonl line 1: tags is empty"),
        ("a.jsonl", '{"words": "x", "tags": ["O"]}', {}, "line 1: words must be a list of texts"),
        ("a.jsonl", '{"words": ["x", ""], "tags": ["O", "O"]}', {}, "line 1: words[1] is empty"),
        (
            "a.jsonl",
            '{"words": ["x", "y"], "tags": ["O", "O"]}\n{"words": ["x", "y"], "tags": ["O"]}',
            {},
            "a.jsonl line 2: 2 words need as many tags, not 1",
        ),
        (
            "a.conll",
            "Ada\tB-PER\nwrote\tO\n\nBob\tPER\n",
            {"tag_scheme": "iob1"},
            "a.conll line 4: 'PER' is no tag of iob1, which has O, B-TYPE, I-TYPE (tag_scheme)",
        ),
        (
            "a.conll",
            "Ada\tB-PER\nwrote\tO\n",
            {"tag_scheme": "bioes"},
            "a.conll line 1: O cannot follow B-PER in bioes (tag_scheme)",
        ),
    ],
)
def test_mistakes_in_tagged_words_are_named(
    name: str, content: str, settings: dict, message: str
) -> None:
    write(name, content)
    with pytest.raises(ValueError) as error:
        rows(name, "tagging", **settings)
    assert message in str(error.value)


def test_a_missing_path_and_a_broken_archive() -> None:
    with pytest.raises(ValueError, match=r"path: no such file or folder: ~/x; write ~ out"):
        source("~/x")
    with pytest.raises(ValueError, match="path: no such file or folder: nowhere"):
        source("nowhere")
    Path("a.csv.gz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match="a.csv.gz line 1: no whole gzip file"):
        rows("a.csv.gz")


def test_check_reads_the_first_row_of_each_file() -> None:
    write("data/a.csv", "text,label\nx,1\n")
    write("data/b.csv", "text,gold\nx,1\n")
    with pytest.raises(ValueError, match=r"b.csv line 2: no column 'label'"):
        source("data").check(KINDS["classification"])
    source("data").check(None)
