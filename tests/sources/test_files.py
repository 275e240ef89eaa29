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

from stages.core.artifacts import Json
from stages.sources._source import SOURCES, split_of
from stages.sources.files import Files
from stages.tasks._kind import SPLITS
from stages.tasks._task import TASKS


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


def test_documents_of_a_folder_are_in_the_order_of_names_without_hidden_and_other_files() -> None:
    write("books/b.txt", "The second book.")
    write("books/a/one.txt", "The first book.")
    write("books/.hidden.txt", "No book.")
    write("books/cover.png", b"\x89PNG")
    assert [(d.id, d.sentences) for d in source("books").documents()] == [
        ("a/one.txt:1", ["The first book."]),
        ("b.txt:1", ["The second book."]),
    ]


def test_documents_keep_their_split_when_others_are_added() -> None:
    for i in range(30):
        write(f"books/{i}.txt", f"Book number {i}.\n\nIt has {i} pages.")
    before = {tuple(d.sentences): d.split for d in source("books").documents()}
    whole = {d.id: d.split for d in source("books", unit="file").documents()}
    write("books/000.txt", "Another book.")
    after = {tuple(d.sentences): d.split for d in source("books").documents()}
    assert len(before) == 60 and before.items() <= after.items()
    assert whole == {f"{i}.txt:1": split_of(f"{i}.txt") for i in range(30)}


def test_documents_of_named_files_have_their_split_and_the_rest_is_drawn_from_train() -> None:
    for name in "ac":
        write(f"books/{name}.txt", "\n\n".join(f"Paragraph {i} of {name}." for i in range(200)))
    write("books/b.txt", "A paragraph of b.")
    named = source("books", train=["a.txt", "c.txt"], validation="b.txt").documents()
    counts = Counter((d.id.split(":")[0], d.split) for d in named)
    assert counts["b.txt", "validation"] == 1
    for name in ("a.txt", "c.txt"):
        assert counts[name, "train"] > 160 and counts[name, "test"] > 5
        assert counts[name, "train"] + counts[name, "test"] == 200


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


# Groups


def write_users(num_users: int = 60) -> None:
    """Writes four reviews of each user, the last users first."""
    users = [f"user{i // 4}" for i in reversed(range(4 * num_users))]
    lines = [f"Review {i} of it.,{'ab'[i % 2]},{user}" for i, user in enumerate(users)]
    write("reviews.csv", "\n".join(["text,label,user", *lines]))


def test_files_draw_all_rows_of_a_group_into_one_split_whatever_other_rows_there_are() -> None:
    kind = TASKS["classification"]

    def splits() -> dict[str | None, set[str]]:
        drawn: dict[str | None, set[str]] = {}
        for example in source("reviews.csv", group="user").examples(kind):
            drawn.setdefault(example.group, set()).add(example.split)
        return drawn

    write_users()
    before = splits()
    by_input = {example.split for example in source("reviews.csv").examples(kind)}
    assert by_input == {"train", "validation", "test"}
    assert Counter(map(len, before.values())) == {1: 60}
    assert before == {f"user{i}": {split_of(f"user{i}")} for i in range(60)}
    assert {split for (split,) in before.values()} == {"train", "validation", "test"}
    write_users(70)
    assert before.items() <= splits().items()
    documents = source("reviews.csv", group="user").documents()
    examples_of = source("reviews.csv", group="user").examples(kind)
    assert [d.split for d in documents] == [e.split for e in examples_of]


def write_days(name: str, days: range, header: str = "text,label,day") -> None:
    """Writes a labelled row for each day, not in the order of the days."""
    dates = [date.fromordinal(737000 + day) for day in days]
    lines = [f"Review of {day}.,{'ab'[i % 2]},{day}" for i, day in enumerate(dates)]
    write(name, "\n".join([header, *sorted(lines, key=lambda line: line[-2:] + line)]))


def test_files_draw_splits_in_the_order_of_time_over_all_files() -> None:
    write_days("f/late.csv", range(60, 100))
    write_days("f/early.csv", range(60))
    examples_of = list(source("f", time="day").examples(TASKS["classification"]))
    days = {s: [e.time.shown for e in examples_of if e.time and e.split == s] for s in SPLITS}
    assert {split: len(some) for split, some in days.items()} == {
        "train": 80,
        "validation": 10,
        "test": 10,
    }
    assert max(days["train"]) < min(days["validation"])
    assert max(days["validation"]) < min(days["test"])
    by_time = [(d.id, d.split) for d in source("f", time="day").documents()]
    assert by_time == [(e.id, e.split) for e in examples_of]


def test_files_count_only_rows_that_are_read_in_splits_by_time() -> None:
    """Rows without a label, often the latest, move no cut."""
    write_days("a.csv", range(50))
    unlabelled = [f"New review {i}.,,{date.fromordinal(738000 + i)}" for i in range(200)]
    timeless = ["No day.,a,"] * 3
    lines = Path("a.csv").read_text().splitlines() + unlabelled + timeless
    write("a.csv", "\n".join(lines))
    read = source("a.csv", time="day", empty_cells="skip").examples(TASKS["classification"])
    assert Counter(e.split for e in read) == {"train": 40, "validation": 5, "test": 5}
    with pytest.raises(ValueError, match=r"^a.csv line \d+: label is empty; `empty_cells: skip`"):
        rows("a.csv", time="day")


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
        ("", {"time": "label"}, "^a.csv line 2: label is 'a', neither"),
        ("", {"time": "author"}, "^a.csv line 2: no column 'author'; there are: text"),
        ("", {"time_format": "%d/%m"}, "time_format: .* has no year"),
        ("", {"time": "none", "time_format": "%Y"}, "time_format: name the column, too"),
    ],
)
def test_files_refuse_times_that_decide_no_split(line: str, settings: Json, fault: str) -> None:
    days = [f"Text {i}.,{'ab'[i % 2]},2018-01-{i + 1:02},train" for i in range(10)]
    write("a.csv", "\n".join(["text,label,day,user", *days, *([line] if line else [])]))
    with pytest.raises(ValueError, match=fault):
        rows("a.csv", **{"time": "day", **settings})


def test_files_refuse_time_beside_given_splits_and_too_few_times() -> None:
    write_days("f/a.csv", range(10))
    write_days("f/b.csv", range(10, 20))
    with pytest.raises(ValueError, match="^time: test is given, but time draws all three splits"):
        rows("f", train="a.csv", test="b.csv", time="day")
    assert len(rows("f", train="a.csv", time="day")) == 10
    write_days("a.csv", range(2))
    with pytest.raises(ValueError, match="^time: day has 2 different times, too few to draw"):
        rows("a.csv", time="day")


def test_files_draw_other_splits_with_each_split_seed() -> None:
    write_users(300)
    kind = TASKS["classification"]

    def test_rows(**settings: Any) -> set[str]:
        read = source("reviews.csv", **settings).examples(kind)
        return {e.id for e in read if e.split == "test"}

    draws = [test_rows(split_seed=seed) for seed in range(4)]
    assert draws[0] == test_rows()
    # Two independent draws of a tenth share about a tenth of their rows.
    assert all(0.02 < len(a & b) / len(a) < 0.25 for a, b in combinations(draws, 2))
    assert all(0.07 < len(draw) / 1200 < 0.13 for draw in draws)
    of_users = source("reviews.csv", group="user", split_seed=1)
    splits = {(e.group, e.split) for e in of_users.examples(kind)}
    assert splits == {(f"user{i}", split_of(f"user{i}", 1)) for i in range(300)}
    documents = source("reviews.csv", split_seed=1).documents()
    assert {d.id for d in documents if d.split == "test"} == draws[1]


def test_files_refuse_a_row_without_a_group_and_groups_without_a_draw() -> None:
    write("a.csv", "text,label,user\ngood,a,x\nbad,b,\n")
    with pytest.raises(ValueError, match=r"^a.csv line 3: user is empty; `empty_cells: skip`"):
        rows("a.csv", group="user")
    assert len(rows("a.csv", group="user", empty_cells="skip")) == 1
    with pytest.raises(ValueError, match=r"^a.csv line 2: no column 'author'; there are: text"):
        rows("a.csv", group="author")
    write("f/a.csv", "text,label,user\ngood,a,x\n")
    for split in ("b", "c"):
        write(f"f/{split}.csv", "text,label,user\nbad,a,y\n")
    with pytest.raises(ValueError, match="^group: train, validation and test are given"):
        rows("f", train="a.csv", validation="b.csv", test="c.csv", group="user")


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
    assert rows("a.csv") == rows("a.jsonl") == rows("a.json.gz") == items


def test_rows_of_parquet_files_are_those_of_jsonl_files() -> None:
    items = [{"words": ["Ada", "wrote"], "tags": ["B-PER", "O"]}, {"words": ["x"], "tags": ["O"]}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(items), "a.parquet")
    write("a.jsonl", "".join(json.dumps(item) + "\n" for item in items))
    assert rows("a.parquet", "tagging") == rows("a.jsonl", "tagging") == items
    with pytest.raises(ValueError, match="^a.parquet row 1: no column 'text'; there are: words"):
        rows("a.parquet")


def test_columns_have_names_of_their_own_or_those_of_a_file_without_header() -> None:
    write("pairs.csv", "id,first,second,gold\n1,A cat.,A dog.,0\n")
    named = rows("pairs.csv", text="first", text_pair="second", label="gold")
    assert named == [{"text": "A cat.", "text_pair": "A dog.", "label": "0"}]
    write("plain.tsv", 'a "quoted film\t1\nanother\t0\n')
    assert rows("plain.tsv", columns=["text", "label"]) == [
        {"text": 'a "quoted film', "label": "1"},
        {"text": "another", "label": "0"},
    ]


def test_columns_may_be_fields_of_objects() -> None:
    write("a.jsonl", '{"translation": {"en": "A dog.", "de": "Ein Hund."}}\n')
    translations = rows("a.jsonl", "seq2seq", text="translation.en", target="translation.de")
    assert translations == [{"text": "A dog.", "target": "Ein Hund."}]
    with pytest.raises(ValueError, match="line 1: no column 'translation.fr'; there are: trans"):
        rows("a.jsonl", "seq2seq", text="translation.en", target="translation.fr")


@pytest.mark.parametrize(
    ("name", "delimiter", "sign"),
    [("a.csv", "semicolon", ";"), ("a.csv", "tab", "\t"), ("a.tsv", "bar", "|")],
)
def test_delimiter_separates_the_columns_of_a_table(name, delimiter, sign) -> None:
    write(name, f"text{sign}label\nodd, too{sign}x\n")
    assert rows(name, delimiter=delimiter) == [{"text": "odd, too", "label": "x"}]
    with pytest.raises(ValueError, match="delimiter"):
        rows(name)


def test_labels_lose_the_blanks_around_them_and_texts_keep_theirs() -> None:
    write("a.csv", "text,label\n one , good\ntwo,good \n")
    assert rows("a.csv") == [{"text": " one ", "label": "good"}, {"text": "two", "label": "good"}]


def test_empty_cells_leave_a_row_out_if_they_are_to_be_skipped() -> None:
    """A row without labels is kept if its kind allows it."""
    write("a.csv", "text,label\nx,1\n ,0\ny,\n")
    assert rows("a.csv", empty_cells="skip") == [{"text": "x", "label": "1"}]
    write("b.csv", "text,labels\nx,\n,a\n")
    assert rows("b.csv", "multi_label", empty_cells="skip") == [{"text": "x", "labels": []}]


CONLLU = """# text = don't
1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tdo\tdo\tAUX\tVB\t_\t_\t_\t_\t_
2\tn't\tnot\tPART\tRB\t_\t_\t_\t_\t_
2.1\tgo\tgo\tVERB\tVB\t_\t_\t_\t_\t_

"""


@pytest.mark.parametrize(
    ("name", "content", "settings", "expected"),
    [
        (
            "a.conll",
            "The\tO\nEmpire\tB-place\n\t\n\nHere\tO\n",
            {},
            [("The Empire", "O B-place"), ("Here", "O")],
        ),
        (
            "b.conll",
            "The DT O\nEmpire NNP B-place\n",
            {"columns": ["words", "pos", "tags"]},
            [("The Empire", "O B-place")],
        ),
        (
            "marks.conll",
            "-DOCSTART- -X- O\n\nAda NNP I-PER\nBob NNP B-PER\n\n-DOCSTART- -X- O\n\nso RB O\n",
            {"columns": ["words", "pos", "tags"], "tag_scheme": "iob1"},
            [("Ada Bob", "B-PER B-PER"), ("so", "O")],
        ),
        ("c.conllu", CONLLU, {}, [("do n't", "AUX PART")]),
        ("c.conllu", CONLLU, {"tags": "XPOS"}, [("do n't", "VB RB")]),
    ],
)
def test_tagged_words_of_conll_files(name, content, settings, expected) -> None:
    write(name, content)
    assert rows(name, "tagging", **settings) == [
        {"words": words.split(), "tags": tags.split()} for words, tags in expected
    ]


@pytest.mark.parametrize(
    ("name", "content", "sentences"),
    [
        ("a.conll", "# id 7\nAda O\n\n# text = x\nBob O\n", ["Ada", "Bob"]),
        ("a.conll", "#begin document (x)\nAda\tO\n\n# id 1\tdomain=en\nBob\tO\n", ["Ada", "Bob"]),
        ("a.conll", "# O\nfun O\n", ["# fun"]),  # a word
        ("a.conll", "#win O\n\nAda O\n", ["#win", "Ada"]),
        ("a.conll", "Old\xa0Town B-LOC\n\u3000x O\n", ["Old\xa0Town \u3000x"]),
        ("a.conll", "Ada\tO\t\nBob\tO\t\t\n", ["Ada Bob"]),
    ],
)
def test_lines_of_conll_files_are_words_unless_they_are_comments(name, content, sentences) -> None:
    write(name, content)
    assert [" ".join(row["words"]) for row in rows(name, "tagging")] == sentences


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


def test_rows_of_json_are_objects_lines_or_questions_of_contexts() -> None:
    write("a.json", '{"text": "x", "label": 1}\n{"text": "y", "label": "1.0"}\n')
    assert [row["label"] for row in rows("a.json")] == ["1", "1"]
    articles = json.loads(squad(question()))["data"]
    write("b.json", json.dumps(articles))
    write("c.json", json.dumps(articles[0]["paragraphs"]))
    assert rows("b.json", "span_qa") == rows("c.json", "span_qa")
    assert len(rows("c.json", "span_qa")) == 1


def test_labels_may_be_columns_of_0_and_1() -> None:
    write("a.csv", "text,joy,fear\nx,1,0\ny,0,0\nz,-1,-1\n")
    settings = {"labels": ["joy", "fear"], "empty_cells": "skip"}
    assert [row["labels"] for row in rows("a.csv", "multi_label", **settings)] == [["joy"], []]


def test_split_is_a_column_that_names_the_split_of_each_row() -> None:
    names = ["train", "Testing", "dev"]
    content = "".join(f"text {i},{i % 2},{names[i % 3]}\n" for i in range(9))
    write("a.csv", f"text,label,part\n{content}")
    examples = [*source("a.csv", split="part").examples(TASKS["classification"])]
    assert [e.split for e in examples] == ["train", "test", "validation"] * 3
    texts = [*source("a.csv", split="part").documents()]
    assert [d.split for d in texts] == ["train", "test", "validation"] * 3
    write("b.csv", "text,label,part\nx,1,train\ny,0,other\n")
    with pytest.raises(ValueError, match="b.csv line 3: part is 'other', not one of"):
        [*source("b.csv", split="part").examples(TASKS["classification"])]
    with pytest.raises(ValueError, match="split: train, validation and test name files"):
        source(".", train="a.csv", split="part")


# Questions and translations

CONTEXT = "Ada wrote the first program. Bob did not."
ADA = {"text": "Ada", "answer_start": 0}


def squad(*questions: dict, context: str = CONTEXT) -> str:
    paragraph = {"context": context, "qas": list(questions)}
    return json.dumps({"version": "1.1", "data": [{"title": "Ada", "paragraphs": [paragraph]}]})


def question(id: str = "q1", answers: list | None = None, **more: Any) -> dict:
    return {"id": id, "question": "Who wrote it?", "answers": answers or [ADA], **more}


def test_questions_of_squad_files() -> None:
    unanswerable = question("q2", is_impossible=True, plausible_answers=[ADA])
    write("a.json", squad(question(answers=[ADA, ADA]), unanswerable))
    questions = list(source("a.json").examples(TASKS["span_qa"]))
    assert [e.id for e in questions] == ["a.json:q1", "a.json:q2"]
    row = {"question": "Who wrote it?", "context": CONTEXT}
    assert [e.row for e in questions] == [row | {"answers": [ADA, ADA]}, row | {"answers": []}]
    assert len(rows("a.json", "span_qa", unanswerable="drop")) == 1


def test_questions_of_other_formats() -> None:
    """Answers may have a user's format or the hub's; settings name the columns."""
    own = {"ask": "Who?", "passage": CONTEXT, "spans": [ADA | {"more": 1}]}
    hub = own | {"spans": {"text": ["Ada"], "answer_start": [0]}}
    write("a.jsonl", f"{json.dumps(own)}\n{json.dumps(hub)}\n")
    first, second = rows("a.jsonl", "span_qa", question="ask", context="passage", answers="spans")
    assert first == second == {"question": "Who?", "context": CONTEXT, "answers": [ADA]}


def write_parallel(english: list[str], german: list[str]) -> None:
    write("train.en", "\n".join(english))
    write("train.de.gz", "\r\n".join(german))


PARALLEL = {"format": "parallel", "train": "train"}


def test_lines_of_parallel_files_are_texts_and_targets() -> None:
    write_parallel(["A dog.", "Two men."], ["Ein Hund.", "Zwei Männer."])
    assert rows(".", "seq2seq", **PARALLEL, text="en", target="de") == [
        {"text": "A dog.", "target": "Ein Hund."},
        {"text": "Two men.", "target": "Zwei Männer."},
    ]
    assert rows(".", "seq2seq", **PARALLEL, text="de", target="en")[0]["text"] == "Ein Hund."


# Splits


def test_splits_of_equal_inputs_are_equal() -> None:
    table = [f"text {i % 50},{i % 2}" for i in range(100)]
    write("a.csv", "text,label\n" + "\n".join(table))
    drawn = list(source("a.csv").examples(TASKS["classification"]))
    assert [e.split for e in drawn[:50]] == [e.split for e in drawn[50:]]
    assert len({e.id for e in drawn}) == 100


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
    splits: dict[str, set[str]] = {}
    for example in source(name).examples(TASKS[kind]):
        splits.setdefault(example.row[shared], set()).add(example.split)
    assert len(splits) == 60 and all(len(drawn) == 1 for drawn in splits.values())
    assert set.union(*splits.values()) == {"train", "validation", "test"}


# Mistakes


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,gold\nx,1\n", "a.csv line 2: no column 'label'; there are: text, gold"),
        ("a.csv", "x,1\ny,2\n", "there are: x, 1; if its first line names none, give their"),
        ("a.csv", "text,label\nx,1\n ,0\n", "a.csv line 3: text is empty"),
        ("a.csv", 'text,label\n"x\ny",1\nz,\n', "a.csv line 4: label is empty"),
        ("a.csv", "text,label\nx,1,2\n", "a.csv line 2: 3 cells, but 2 columns: text, label"),
        ("a.csv", 'text,label\n"x,1\n', "a.csv line 2: unexpected end of data; a quotation"),
        ("a.csv", b"text,label\nx\xe9,1\n", "a.csv line 2: byte 0xe9 is not UTF-8"),
        ("a.csv", "", "a.csv line 1: the file is empty"),
        ("a.csv", b"PK\x03\x04", "a.csv line 1: this is an xlsx"),
        ("a.csv", b"\x1f\x8b\x08", "a.csv line 1: this is a gzip file; add .gz"),
        ("a.jsonl", '{"text": "\\ud83d", "label": 1}', "a.jsonl line 1: '\\ud83d' is half a surr"),
        ("a.csv", "text;label\nx;1\n", "line 1: one column, 'text;label'; a csv file has commas"),
        ("a.csv", "text,label,text\nx,1,y\n", "a.csv line 1: two columns have the name 'text'"),
        ("a.csv.gz", b"", "a.csv.gz line 1: the file is empty"),
        ("a.jsonl", '{"text": "x"}\n', "a.jsonl line 1: no column 'label'; there are: text"),
        ("a.jsonl", '\n{"text": \n', "a.jsonl line 2: not JSON: "),
        (
            "a.jsonl",
            '\n{"label": 1, "label": 0}',
            "a.jsonl line 2: the key 'label' is there more tha",
        ),
        ("a.json", '[{"a": {"b": "x", "b": "y"}}]', "a.json: the key 'b' is there more than once"),
        (
            "a.jsonl",
            '{"text": "x", "label": 1}\n' + "[" * 10**5,
            "a.jsonl line 2: is nested too deeply",
        ),
        ("a.jsonl", '{"text": ["x"], "label": 1}', "line 1: text must be a text, not ['x']"),
        ("a.jsonl", '{"text": "x", "label": NaN}', "a.jsonl line 1: label is empty"),
        ("a.jsonl", '{"text": "x", "label": null}', "a.jsonl line 1: label is empty"),
        ("a.jsonl", "[1]\n", "a.jsonl line 1: must be an object with the columns, not [1]"),
        ("a.json", '[{"text": "x", "label": 1}, 2]', "a.json object 2: must be an object with"),
        ("a.json", '[\n{"text" 1}]', "a.json line 2: not JSON: "),
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
        ("data", {"train": ["a.csv", "a.csv"]}, "train: a.csv already belongs to train"),
        ("data", {"train": "a.csv", "test": "a.csv"}, "test: a.csv already belongs to train"),
        ("data", {"format": "parallel"}, "train: name what parallel files begin with"),
        ("data", {"test": "a.csv"}, "train: name its file too"),
        ("data", {"train": "b.csv"}, "did you mean 'a.csv'?"),
        ("data/a.csv", {"train": "b.csv"}, "path: data/a.csv is a file, but splits"),
        ("nowhere", {}, "path: no such file or folder: nowhere"),
    ],
)
def test_settings_that_name_no_file_are_refused(path: str, settings: dict, message: str) -> None:
    write("data/a.csv", "text,label\nx,1\n")
    with pytest.raises(ValueError) as error:
        source(path, **settings)
    assert message in str(error.value)


def test_a_broken_archive_is_named() -> None:
    Path("a.csv.gz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match="a.csv.gz line 1: no whole gzip file"):
        rows("a.csv.gz")


@pytest.mark.parametrize(
    ("scheme", "content", "message"),
    [
        ("bio", "The\tO\nEmpire\n", "a.conll line 2: 1 cells, but 2 columns: words, tags"),
        (
            "iob1",
            "Ada\tB-PER\nwrote\tO\n\nBob\tPER\n",
            "a.conll line 4: 'PER' is no tag of iob1, which has O, B-TYPE, I-TYPE (tag_scheme)",
        ),
        (
            "bioes",
            "Ada\tB-PER\nwrote\tO\n",
            "a.conll line 1: O cannot follow B-PER in bioes (tag_scheme)",
        ),
    ],
)
def test_tags_that_a_scheme_has_not_are_named_with_their_line(scheme, content, message) -> None:
    write("a.conll", content)
    with pytest.raises(ValueError) as error:
        rows("a.conll", "tagging", tag_scheme=scheme)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"words": ["x"], "tags": []}', "a.jsonl line 1: tags is empty"),
        ('{"words": 3, "tags": ["O"]}', "line 1: words must be a list of texts"),
        ('{"words": ["x", ""], "tags": ["O", "O"]}', "line 1: words[1] is empty"),
        ('\n{"words": ["x", "y"], "tags": ["O"]}', "line 2: 2 words need as many tags, not 1"),
    ],
)
def test_tagged_words_that_do_not_fit_are_named(content: str, message: str) -> None:
    write("a.jsonl", content)
    with pytest.raises(ValueError) as error:
        rows("a.jsonl", "tagging")
    assert message in str(error.value)


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
        (squad({"id": "q3", "question": "Who?"}), "question 1: lacks 'answers'"),
        (squad({"id": "q3", "answers": [ADA]}), "question 1: lacks 'question'"),
        (squad(question(), context=" "), "question q1: context is empty"),
        ('{"data": [{"title": "x"}]}', "a.json object 1: no column 'question'; there are: title"),
        ('{"rows": []}', 'must be a list of objects, or {"data": [...]}'),
    ],
)
def test_questions_that_cannot_be_read_are_named(content: str, message: str) -> None:
    write("a.json", content)
    with pytest.raises(ValueError) as error:
        rows("a.json", "span_qa")
    assert message in str(error.value)


def test_parallel_files_that_do_not_fit_are_named() -> None:
    languages = {"text": "en", "target": "de"}
    write_parallel(["A", "B"], ["A"])
    with pytest.raises(ValueError, match="^train.de.gz has 1 lines, but train.en has more"):
        rows(".", "seq2seq", **PARALLEL, **languages)
    write_parallel(["A", "B"], ["A", " "])
    with pytest.raises(ValueError, match="train line 2: de is empty"):
        rows(".", "seq2seq", **PARALLEL, **languages)
    with pytest.raises(ValueError, match="source: no such file: train.fr, nor train.fr.gz"):
        rows(".", "seq2seq", **PARALLEL, text="en", target="fr")


def test_check_reads_the_first_row_of_each_file() -> None:
    write("data/a.csv", "text,label\nx,1\n")
    write("data/b.csv", "text,gold\nx,1\n")
    with pytest.raises(ValueError, match=r"b.csv line 2: no column 'label'"):
        source("data").check(TASKS["classification"])
    source("data").check(None)
