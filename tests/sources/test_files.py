"""The user's files are read unchanged, and a mistake is reported with its file and line."""

import csv
import gzip
import json
from collections import Counter
from datetime import date
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from stages.sources._source import SOURCES, split_of
from stages.sources.files import Files
from stages.tasks._task import SPLITS, TASKS
from tests.published import DATASETS, needs_datasets

KIND = TASKS["classification"]


def write(name: str, content: str | bytes) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def source(path: str, **settings: Any) -> Files:
    entry = {"name": "files", "path": path, **settings}
    return cast(Files, SOURCES.build(entry, where="tasks.own.source"))


def rows(path: str, kind: str = "classification", **settings: Any) -> list[dict]:
    return [e.row for e in source(path, **settings).examples(TASKS[kind])]


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
def test_documents_of_a_text_are_its_units(name: str, unit: str, documents: list) -> None:
    write(name, "\ufeff\nOne.  Two goes\r\non.\r\n \r\n\r\nThree.")
    texts = [d.sentences for d in source(name, unit=unit).documents()]
    assert texts == [[s.replace("\t", " ") for s in d] for d in documents]


def test_documents_of_a_folder_keep_their_split_when_others_are_added() -> None:
    for i in range(30):
        write(f"books/{i:02}/a.txt", f"Book number {i}.\n\nIt has {i} pages.")
    write("books/.hidden.txt", "No book.")
    write("books/cover.png", b"\x89PNG")
    before = {tuple(d.sentences): d.split for d in source("books").documents()}
    whole = [(d.id, d.split) for d in source("books", unit="file").documents()]
    write("books/000.txt", "Another book.")
    parts = source("books", train=[f"{i:02}/a.txt" for i in range(29)], validation="29/a.txt")
    assert {d.split for d in parts.documents() if d.id.startswith("29/")} == {"validation"}
    assert {d.split for d in parts.documents()} == set(SPLITS)
    after = {tuple(d.sentences): d.split for d in source("books").documents()}
    assert len(before) == 60 and before.items() <= after.items()
    assert whole == [(f"{i:02}/a.txt:1", split_of(f"{i:02}/a.txt")) for i in range(30)]


@pytest.mark.parametrize(
    ("name", "content", "documents"),
    [
        ("a.csv", 'text\n"One. Two."\n" "\n', [["One.", "Two."]]),
        ("a.jsonl", '{"text": "One. Two."}\n{"text": ""}\n', [["One.", "Two."]]),
        ("a.conll", "Ada\tO\nwrote\tO\n\nBob\tO\n", [["Ada wrote"], ["Bob"]]),
    ],
)
def test_documents_of_a_table_are_the_cells_of_a_column(name, content, documents) -> None:
    """A row without text is no document."""
    write(name, content)
    assert [d.sentences for d in source(name).documents()] == documents


# Splits


def write_users(num_users: int = 60) -> None:
    """Writes four reviews of each user, the last users first."""
    users = [f"user{i // 4}" for i in reversed(range(4 * num_users))]
    lines = [f"Review {i} of it.,{'ab'[i % 2]},{user}" for i, user in enumerate(users)]
    write("reviews.csv", "\n".join(["text,label,user", *lines]))


def test_files_draw_all_rows_of_a_group_into_one_split_whatever_other_rows_there_are() -> None:
    for num_users in (60, 70):
        write_users(num_users)
        examples_of = [*source("reviews.csv", group="user").examples(KIND)]
        drawn = {(e.group, e.split) for e in examples_of}
        assert drawn == {(f"user{i}", split_of(f"user{i}")) for i in range(num_users)}
        documents = source("reviews.csv", group="user").documents()
        assert [d.split for d in documents] == [e.split for e in examples_of]
    assert {split for _, split in drawn} == set(SPLITS)


def test_files_draw_other_splits_with_each_split_seed() -> None:
    write_users(300)

    def test_rows(**settings: Any) -> set[str]:
        read = source("reviews.csv", **settings).examples(KIND)
        return {e.id for e in read if e.split == "test"}

    draws = [test_rows(split_seed=seed) for seed in range(4)]
    assert draws[0] == test_rows()
    # Two independent draws of a tenth share about a tenth of their rows.
    assert all(0.02 < len(a & b) / len(a) < 0.25 for a, b in combinations(draws, 2))
    assert all(0.07 < len(draw) / 1200 < 0.13 for draw in draws)
    of_users = source("reviews.csv", group="user", split_seed=1).examples(KIND)
    assert {(e.group, e.split) for e in of_users} == {
        (f"user{i}", split_of(f"user{i}", 1)) for i in range(300)
    }


@pytest.mark.parametrize("kind", ["span_qa", "classification"])
def test_splits_keep_questions_about_a_context_and_pairs_of_a_premise_together(kind) -> None:
    numbers = [(i, j) for i in range(60) for j in range(3)]
    if kind == "span_qa":
        shared, name = "context", "a.jsonl"
        items = [question(context=f"{CONTEXT} {i}") | {"question": f"Who {j}?"} for i, j in numbers]
        write(name, "".join(json.dumps(row) + "\n" for row in items))
    else:
        shared, name = "text", "a.csv"
        pairs = [f"Premise {i}.,Hypothesis {j}.,{(i + j) % 3}" for i, j in numbers]
        write(name, "\n".join(["text,text_pair,label", *pairs]))
    drawn = [(e.row[shared], e.split) for e in source(name).examples(TASKS[kind])]
    assert len({*drawn}) == 60 and {split for _, split in drawn} == set(SPLITS)


def write_days(name: str, days: range) -> None:
    """Writes a labelled row for each day, not in the order of the days."""
    dates = [date.fromordinal(737000 + day) for day in days]
    lines = [f"Review of {day}.,{'ab'[i % 2]},{day}" for i, day in enumerate(dates)]
    write(name, "\n".join(["text,label,day", *sorted(lines, key=lambda line: line[-2:] + line)]))


def test_files_draw_splits_in_the_order_of_time_over_all_files() -> None:
    """Rows without a label, often the latest, move no cut."""
    write_days("f/late.csv", range(60, 100))
    write_days("f/early.csv", range(60))
    unlabelled = [f"New review {i}.,,{date.fromordinal(738000 + i)}" for i in range(200)]
    write("f/new.csv", "\n".join(["text,label,day", *unlabelled, "No day.,a,"]))
    settings = {"time": "day", "empty_cells": "skip"}
    examples_of = [*source("f", **settings).examples(KIND)]
    days = {s: [e.time.shown for e in examples_of if e.time and e.split == s] for s in SPLITS}
    assert [len(days[split]) for split in SPLITS] == [80, 10, 10]
    assert max(days["train"]) < min(days["validation"])
    assert max(days["validation"]) < min(days["test"])
    with pytest.raises(ValueError, match=r"new.csv line 2: label is empty; `empty_cells: skip`"):
        rows("f", time="day")


@pytest.mark.parametrize(
    ("line", "settings", "fault"),
    [
        ("No day.,a,,x", {}, "^a.csv line 12: day is empty; `empty_cells: skip`"),
        ("A.,a,03/04/2020,x", {}, "^a.csv line 12: day is '03/04/2020', neither .*`time_format`"),
        ("A.,a,2020,x", {}, "^a.csv line 12: day is '2020', a number, but a.csv line 2 has '2018"),
        ("A.,a,2020-01-01T00:00Z,x", {}, "^a.csv line 12: .*, a time with an offset, but a.csv "),
        ("", {"group": "user"}, "^time: splits are drawn .* group would have no effect"),
        ("", {"split_seed": 2}, "^time: splits are drawn .* split_seed would have no effect"),
        ("", {"split": "user"}, "source: time: the column user gives the splits .* leave one"),
        ("", {"time_format": "%d/%m"}, "time_format: .* has no year"),
        ("", {"time": "none", "group": "author"}, "^a.csv line 2: no column 'author'"),
        ("A.,a,2020-01-01,", {"time": "none", "group": "user"}, "^a.csv line 12: user is empty"),
    ],
)
def test_files_refuse_times_and_groups_that_decide_no_split(line, settings, fault) -> None:
    days = [f"Text {i}.,{'ab'[i % 2]},2018-01-{i + 1:02},train" for i in range(10)]
    write("a.csv", "\n".join(["text,label,day,user", *days, *([line] if line else [])]))
    with pytest.raises(ValueError, match=fault):
        rows("a.csv", **{"time": "day", **settings})


def test_files_refuse_a_draw_beside_given_splits_and_too_few_times() -> None:
    for i, name in enumerate("abc"):
        write_days(f"f/{name}.csv", range(10 * i, 10 * i + 10))
    with pytest.raises(ValueError, match="^time: test is given, but time draws all three splits"):
        rows("f", train="a.csv", test="b.csv", time="day")
    with pytest.raises(ValueError, match="^group: train, validation and test are given"):
        rows("f", train="a.csv", validation="b.csv", test="c.csv", group="day")
    write_days("a.csv", range(2))
    with pytest.raises(ValueError, match="^time: day has 2 different times, too few to draw"):
        rows("a.csv", time="day")


def test_split_is_a_column_that_names_the_split_of_each_row() -> None:
    names = ["train", "Testing", "dev"]
    content = "".join(f"text {i},{i % 2},{names[i % 3]}\n" for i in range(9))
    write("a.csv", f"text,label,part\n{content}")
    examples_of = [*source("a.csv", split="part").examples(KIND)]
    assert [e.split for e in examples_of] == ["train", "test", "validation"] * 3
    write("b.csv", "text,label,part\nx,1,train\ny,0,other\n")
    with pytest.raises(ValueError, match="b.csv line 3: part is 'other', not one of"):
        rows("b.csv", split="part")


# Tables


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
def test_rows_of_all_formats_are_the_same(table: list[tuple[str, str]]) -> None:
    with open("a.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *table])
    items = [{"text": text, "label": label} for text, label in table]
    write("a.jsonl", "".join(json.dumps(item) + "\n" for item in items))
    write("a.json.gz", json.dumps(items, ensure_ascii=False))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(items), "a.parquet")
    for name in ("a.csv", "a.jsonl", "a.json.gz", "a.parquet"):
        assert rows(name) == items


def test_columns_have_names_of_their_own_or_those_of_a_file_without_header() -> None:
    write("pairs.csv", "id,first,second,gold\n1,A cat.,A dog.,0\n")
    named = rows("pairs.csv", text="first", text_pair="second", label="gold")
    assert named == [{"text": "A cat.", "text_pair": "A dog.", "label": "0"}]
    write("plain.tsv", 'a "quoted film\t1\nanother\t0\n')
    plain = rows("plain.tsv", columns=["text", "label"])
    write("bar.tsv", "text|label\nodd, too|x\n")
    assert rows("bar.tsv", delimiter="bar") == [{"text": "odd, too", "label": "x"}]
    assert [*plain[0].values(), *plain[1].values()] == ['a "quoted film', "1", "another", "0"]
    write("a.jsonl", '{"translation": {"en": "A dog.", "de": "Ein Hund."}}\n')
    translations = rows("a.jsonl", "seq2seq", text="translation.en", target="translation.de")
    assert translations == [{"text": "A dog.", "target": "Ein Hund."}]
    with pytest.raises(ValueError, match="line 1: no column 'translation.fr'"):
        rows("a.jsonl", "seq2seq", text="translation.en", target="translation.fr")


@pytest.mark.parametrize(
    ("name", "content", "kind", "read"),
    [
        ("a.csv", "text,label\n x , 1 \n ,0\ny,\n", "classification", [{"text": " x "}]),
        ("b.csv", "text,labels\nx,\n,a\n", "multi_label", [{"text": "x", "labels": []}]),
        ("c.csv", "text,joy,fear\nx,1,0\nz,-1,-1\n", "multi_label", [{"labels": ["joy"]}]),
        (
            "a.jsonl",
            '{"text": "x"}\n{"text": "y", "label": 1}\n',
            "classification",
            [{"text": "y"}],
        ),
        ("a.json", '[{"text": "x", "label": 1}, {"label": 2}]', "classification", [{"text": "x"}]),
    ],
)
def test_empty_cells_and_absent_keys_leave_a_row_out_if_they_are_skipped(
    name, content, kind, read
) -> None:
    """A row without labels is kept if its kind allows it; labels may be columns of 0 and 1, and
    lose the blanks around them."""
    write(name, content)
    settings = {"labels": ["joy", "fear"]} if "joy" in content else {}
    got = rows(name, kind, empty_cells="skip", **settings)
    assert [row | part for row, part in zip(got, read, strict=True)] == got
    assert got[0].get("label", "1") == "1"
    if "joy" not in content:
        with pytest.raises(ValueError, match="no column|is empty"):
            rows(name, "classification")


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_column_that_no_row_has_is_missing_even_if_empty_cells_are_skipped(name) -> None:
    write(name, "text\nx\n" if name == "a.csv" else '{"text": "x"}\n{"text": "y"}')
    with pytest.raises(ValueError, match="no column 'label'; there are: text"):
        rows(name, empty_cells="skip")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "sep=;\ntext;label\nx;1\n"),
        ("a.csv", '\ufeff"SEP=\t"\r\ntext\tlabel\r\nx\t1\r\n'),
        ("a.csv", 'text,label\ntext,label\nx,1\n\ufeff"Text", label\n'),
        ("a.tsv", "text\tlabel\t\nx\t1\t\n"),
        ("a.csv", "text,label\nx,1,,\n"),
        ("a.csv", ",text,label,,\n0,x,1,,\n"),
    ],
)
def test_lines_of_tables_that_are_no_rows_are_left_out(name: str, content: str) -> None:
    write(name, content)
    assert rows(name) == [{"text": "x", "label": "1"}]


# Words, questions and translations

CONLLU = """# text = don't
1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tdo\tdo\tAUX\tVB\t_\t_\t_\t_\t_
2\tn't\tnot\tPART\tRB\t_\t_\t_\t_\t_
2.1\tgo\tgo\tVERB\tVB\t_\t_\t_\t_\t_

"""
IOB1 = "-DOCSTART- -X- O\n\nAda NNP I-PER\nBob NNP B-PER\n\n-DOCSTART- -X- O\n\nso RB O\n"
THREE = {"columns": ["words", "pos", "tags"]}


@pytest.mark.parametrize(
    ("name", "content", "settings", "expected"),
    [
        ("a.conll", "The\tO\nEmpire\tB-x\n\t\n\nHere\tO\n", {}, ["The Empire|O B-x", "Here|O"]),
        ("a.conll", "The DT O\nEmpire NNP B-x\n", THREE, ["The Empire|O B-x"]),
        ("a.conll", IOB1, THREE | {"tag_scheme": "iob1"}, ["Ada Bob|B-PER B-PER", "so|O"]),
        ("a.conllu", CONLLU, {}, ["do n't|AUX PART"]),
        ("a.conllu", CONLLU, {"tags": "XPOS"}, ["do n't|VB RB"]),
        ("a.conll", "# id 7\nAda O\n\n# text = x\nBob O\n", {}, ["Ada|O", "Bob|O"]),
        ("a.conll", "#begin document (x)\nAda\tO\n\n# id 1\tdomain=en\n", {}, ["Ada|O"]),
        ("a.conll", "# O\nfun O\n\n#win O\n", {}, ["# fun|O O", "#win|O"]),  # words
        ("a.conll", "Old\xa0Town B-LOC\n\u3000x O\n", {}, ["Old\xa0Town \u3000x|B-LOC O"]),
        ("a.conll", "Ada\tO\t\nBob\tO\t\t\n", {}, ["Ada Bob|O O"]),
    ],
)
def test_tagged_words_of_conll_files(name, content, settings, expected) -> None:
    write(name, content)
    read = [
        " ".join(row["words"]) + "|" + " ".join(row["tags"])
        for row in rows(name, "tagging", **settings)
    ]
    assert read == expected


CONTEXT = "Ada wrote the first program. Bob did not."
ADA = {"text": "Ada", "answer_start": 0}


def squad(*questions: dict, context: str = CONTEXT) -> str:
    paragraph = {"context": context, "qas": list(questions)}
    return json.dumps({"version": "1.1", "data": [{"title": "Ada", "paragraphs": [paragraph]}]})


def question(id: str = "q1", answers: list | None = None, **more: Any) -> dict:
    return {"id": id, "question": "Who wrote it?", "answers": answers or [ADA], **more}


def test_questions_of_squad_files_and_of_lists_of_their_contexts() -> None:
    unanswerable = question("q2", is_impossible=True, plausible_answers=[ADA])
    write("a.json", squad(question(answers=[ADA, ADA]), unanswerable))
    questions = list(source("a.json").examples(TASKS["span_qa"]))
    assert [e.id for e in questions] == ["a.json:q1", "a.json:q2"]
    row = {"question": "Who wrote it?", "context": CONTEXT}
    expected = [row | {"answers": [ADA, ADA]}, row | {"answers": []}]
    assert [e.row for e in questions] == expected
    assert rows("a.json", "span_qa", unanswerable="drop") == expected[:1]
    articles = json.loads(Path("a.json").read_text())["data"]
    write("b.json", json.dumps(articles))
    write("c.json", json.dumps(articles[0]["paragraphs"]))
    assert rows("b.json", "span_qa") == rows("c.json", "span_qa") == expected


def test_lines_of_parallel_files_are_texts_and_targets() -> None:
    def read(german: str, text: str = "en", target: str = "de") -> list[dict]:
        write("train.en", "A dog.\nTwo men.")
        write("train.de.gz", german)
        languages = {"text": text, "target": target}
        return rows(".", "seq2seq", format="parallel", train="train", **languages)

    german = "Ein Hund.\r\nZwei Männer."
    assert read(german)[1] == {"text": "Two men.", "target": "Zwei Männer."}
    assert read(german, "de", "en")[0]["text"] == "Ein Hund."
    with pytest.raises(ValueError, match="^train.de.gz has 1 lines, but train.en has more"):
        read("Ein Hund.")
    with pytest.raises(ValueError, match="train line 2: de is empty"):
        read("Ein Hund.\n ")
    with pytest.raises(ValueError, match="source: no such file: train.fr, nor train.fr.gz"):
        read(german, "en", "fr")


# Mistakes


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,gold\nx,1\n", "a.csv line 2: no column 'label'; there are: text, gold"),
        ("a.csv", "x,1\ny,2\n", "there are: x, 1; if its first line names none, give their"),
        ("a.csv", 'text,label\n"x\ny",1\nz,\n', "a.csv line 4: label is empty"),
        ("a.csv", "text,label\nx,1,2\n", "a.csv line 2: 3 cells, but 2 columns: text, label"),
        ("a.csv", 'text,label\n"x,1\n', "a.csv line 2: no row of csv: unexpected end"),
        ("a.csv", 'text,label\n"a \\"b\\" c",1\n', "a.csv line 2: no row of csv: "),
        ("a.csv", "text,label\na\rb,1\n", "a.csv line 2: no row of csv: "),
        ("a.csv", "text,label\ra,1\r", "a.csv line 1: no row of csv: "),
        ("a.csv", b"text,label\nx\xe9,1\n", "a.csv line 2: byte 0xe9 is not UTF-8"),
        ("a.csv", "text,label,text\nx,1,y\n", "a.csv line 1: two columns have the name 'text'"),
        ("a.csv", "text,label\nx,1\nlabel,text\n", "a.csv line 3: has the names of the columns in"),
        ("a.jsonl", '\n{"text": \n', "a.jsonl line 2: not JSON: "),
        ("a.jsonl", '{"label": 1, "label": 0}', "line 1: the key 'label' is there more than once"),
        ("a.json", '[{"text": "x", "label": 1}, 2]', "a.json object 2: must be an object with"),
        ("a.json", "{}", "a.json line 1: must be a list of objects"),
        ("a.parquet", b"PAR1", "a.parquet: no whole parquet file: "),
        ("a.txt", "Text.", "a.txt: a txt file has no labels"),
        ("a.dat", "x\t1\n", "format: name it, since a.dat does not end in one of txt, csv"),
        ("data/a.png", "", "path: no txt/csv/tsv/jsonl/json/conll/conllu/parquet file is in data"),
    ],
)
def test_files_that_cannot_be_read_are_named(name: str, content: str | bytes, message: str) -> None:
    write(name, content)
    with pytest.raises(ValueError) as error:
        rows(name.split("/")[0])
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("path", "settings", "message"),
    [
        ("data", {"train": "a.csv", "test": "a.csv"}, "test: a.csv already belongs to train"),
        ("data", {"format": "parallel"}, "train: name what parallel files begin with"),
        ("data", {"train": "b.csv"}, "did you mean 'a.csv'?"),
        ("nowhere", {}, "path: no such file or folder: nowhere"),
    ],
)
def test_settings_that_name_no_file_are_refused(path: str, settings: dict, message: str) -> None:
    write("data/a.csv", "text,label\nx,1\n")
    with pytest.raises(ValueError) as error:
        source(path, **settings)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("kind", "name", "content", "message"),
    [
        ("tagging", "a.conll", "The\tO\nEmpire\n", "line 2: 1 cells, but 2 columns: words, tags"),
        ("tagging", "a.conll", "Ada\tB-PER\n\nBob\tPER\n", "line 3: 'PER' is no tag of iob1"),
        ("tagging", "a.jsonl", '{"words": ["x", "y"], "tags": ["O"]}', "2 words need as many tags"),
        (
            "span_qa",
            "a.json",
            squad(question(), question("q7", [{"text": "Bob", "answer_start": 28}])),
            "a.json question q7: answers: 'Bob' is not in the context at character 28; the "
            "context has ' Bo'",
        ),
        ("span_qa", "a.json", squad({"id": "q3", "question": "Who?"}), "1: lacks 'answers'"),
    ],
)
def test_words_and_questions_that_do_not_fit_are_named(kind, name, content, message) -> None:
    write(name, content)
    with pytest.raises(ValueError) as error:
        rows(name, kind, tag_scheme="iob1")
    assert message in str(error.value)


def test_check_reads_the_first_row_of_each_file() -> None:
    write("data/a.csv", "text,label\nx,1\n")
    write("data/b.csv", "text,gold\nx,1\n")
    with pytest.raises(ValueError, match=r"b.csv line 2: no column 'label'"):
        source("data").check(KIND)
    source("data").check(None)


# Published datasets have the sizes that their README states

SETTINGS: dict[str, dict[str, Any]] = {
    "sst2": {"columns": ["text", "label"]},
    "sick": {"format": "tsv", "text": "sentence_A", "text_pair": "sentence_B"}
    | {"label": "entailment_judgment"},
    "wnut17": {"format": "conll"},
    "qa": {"unanswerable": "drop"},
    "multi30k": {"format": "parallel", "text": "en", "target": "de"},
}


TAGGED = ["wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"]
WIKI = ["new_wiki_v1.0.json", "squad-v2.0-dev-half.json", "xquad.en.json"]


@needs_datasets
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "path", "files", "sizes"),
    [
        ("classification", "sst2", ["train.tsv", "dev.tsv", "test.tsv"], [6920, 872, 1821]),
        (
            "classification",
            "sick",
            ["SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt"],
            [4500, 500, 4927],
        ),
        ("tagging", "wnut17", TAGGED, [3394, 1009, 1287]),
        ("span_qa", "qa", WIKI, [7938, 2910, 1190]),
        ("seq2seq", "multi30k", ["train", "val", "test_2016_flickr"], [29000, 1014, 1000]),
    ],
)
def test_published_splits_have_their_numbers_of_examples(kind, path, files, sizes) -> None:
    named = dict(zip(SPLITS, files, strict=True))
    read = [*source(f"{DATASETS}/{path}", **SETTINGS[path], **named).examples(TASKS[kind])]
    counts = Counter(example.split for example in read)
    assert [counts[split] for split in SPLITS] == sizes
    assert len({example.id for example in read}) == len(read)


@needs_datasets
@pytest.mark.parametrize(
    ("path", "unit", "words"),
    [
        ("gutenberg/Doyle_Hound_1902.txt.gz", "file", 59_639),
        ("gutenberg/Lee_Penelope_1903.txt.gz", "paragraph", 21_840),
        ("state-union/state_union.txt.gz", "paragraph", 349_711),
    ],
)
def test_published_texts_lose_no_word(path: str, unit: str, words: int) -> None:
    """Whatever the unit, no word is lost, and byte order marks and line ends are no text."""
    texts = source(f"{DATASETS}/{path}", unit=unit).documents()
    text = " ".join(sentence for document in texts for sentence in document.sentences)
    assert len(text.split()) == words
    assert not {"\ufeff", "\r", "\n"} & set(text)
