"""What files are like that people publish: quirks that no writer of clean files thinks of."""

import json
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from stages.kinds._kind import KINDS
from stages.sources._formats import read
from stages.sources._source import SOURCES
from tests.labelled_files import NUM, objects, proposed, table, tagged, texts


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("requirements.lock").write_text("")


def seen(path: str) -> str:
    return " ".join(proposed(path).notes.seen)


def unclear(path: str) -> str:
    return " ".join(proposed(path).notes.unclear)


def command_of(error: str) -> str:
    """What a message says to run, which ends it."""
    return error.partition(": ")[2].rpartition(": ")[2]


# Classes and numbers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("label-fine", lambda i: i % 30, "classification"),  # numbers of 30 classes
        ("label-fine", lambda i: i % 30 + 1, "classification"),
        ("label-fine", lambda i: 3 * (i % 30), "regression"),  # not all numbers of a range
        ("grade", lambda i: i % 30, "regression"),  # no name of a class
    ],
)
def test_many_whole_numbers_are_classes_if_they_are_numbered_and_named_so(
    name: str, value, kind: str
) -> None:
    rows = [(text, value(i)) for i, (text, _) in enumerate(texts(120))]
    Path("a.csv").write_text(table([("text", name), *rows]))
    proposal = proposed("a.csv")
    assert proposal.study.kind == kind
    said = " ".join(proposal.notes.unclear)
    assert ("--task regression" in said) == (kind == "classification")


@pytest.mark.parametrize("left_out", [set(), {3, 17, 18}])
@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_an_index_without_a_name_is_not_what_is_predicted(
    name: str, left_out: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pandas writes it, also after rows were left out, and where only some are looked at."""
    monkeypatch.setattr("stages.proposal.layout.PROFILED", 40)
    rows = [(i, t, f"is {t}") for i, (t, _) in enumerate(texts(120)) if i not in left_out]
    Path("a.csv").write_text(table([(name, "statement", "reply"), *rows]))
    proposal = proposed("a.csv")
    assert proposal.study.kind == "seq2seq"
    assert proposal.study.source["target"] == "reply"


def test_an_index_with_a_name_is_known_by_every_tenth_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.proposal.layout.PROFILED", 40)
    rows = [(i, t, f"is {t}") for i, (t, _) in enumerate(texts(400))]
    Path("a.csv").write_text(table([("place", "statement", "reply"), *rows]))
    assert proposed("a.csv").study.kind == "seq2seq"


@pytest.mark.parametrize(
    "mark",
    [
        lambda i: f"https://example.org/{i % 4}",
        lambda i: f"2016-09-{i % 4 + 10} 10:22:34",
        lambda i: f"{i % 4 + 1}/12/2016",
        lambda i: f"2016-09-{i % 20 + 10}T10:{i % 60:02}:34.{i}Z",  # never the same
    ],
)
def test_addresses_and_times_are_neither_classes_nor_texts(mark) -> None:
    rows = [(label, text, mark(i)) for i, (text, label) in enumerate(texts())]
    Path("a.csv").write_text(table([("author", "content", "made"), *rows]))
    proposal = proposed("a.csv")
    assert proposal.study.source["label"] == "author"
    assert proposal.study.source["text"] == "content" and not proposal.notes.unclear


# Lists -------------------------------------------------------------------------------------------


def test_lists_of_unlike_lengths_are_no_words_and_tags() -> None:
    moods = (["glad", "calm"], ["sad"], ["glad"], ["calm", "sad", "glad"])
    rows = [
        {"text": t, "kind": "ab"[i % 2], "mood": moods[i % 4], "about": ["x", "y"][: i % 3]}
        for i, (t, _) in enumerate(texts())
    ]
    Path("a.jsonl").write_text(objects(rows))
    assert proposed("a.jsonl").study.kind == "multi_label"
    named = [{key.replace("kind", "category"): v for key, v in row.items()} for row in rows]
    Path("b.jsonl").write_text(objects(named))
    proposal = proposed("b.jsonl")
    assert proposal.study.kind == "classification"
    assert "--column labels=mood" in " ".join(proposal.notes.unclear)


def test_one_row_of_words_that_lacks_a_tag_is_refused_with_its_line() -> None:
    rows = [
        {"tokens": [f"a{i}", "b"][: 1 + i % 2], "tags": ["O", "X"][: 1 + i % 2]} for i in range(NUM)
    ]
    rows[6]["tags"] = ["O", "O"]
    Path("a.jsonl").write_text(objects(rows))
    with pytest.raises(ValueError, match="line 7.*tags"):
        proposed("a.jsonl")


# Tables ------------------------------------------------------------------------------------------


def test_a_tsv_file_whose_cells_are_quoted() -> None:
    """Only one row, far behind, has a tab inside a cell."""
    rows = [*texts(700), ('"one with a\ttab and a ""word"""', "good")]
    Path("a.tsv").write_text(table([("text", "label"), *rows], "\t"))
    proposal = proposed("a.tsv")
    assert proposal.study.source["delimiter"] == "tab" and "quotation marks" in seen("a.tsv")
    (found,) = [
        record.cells["text"]
        for record in read(
            Path("a.tsv"), "csv", columns=None, unit="line", languages=[], delimiter="tab"
        )
        if "tab" in record.cells["text"]
    ]
    assert found == 'one with a\ttab and a "word"'
    plain = [*texts(), ('5" or "more" of them', "good")]  # marks that are text
    Path("b.tsv").write_text(table([("text", "label"), *plain], "\t"))
    assert "delimiter" not in proposed("b.tsv").study.source


def test_a_mark_that_does_not_close_and_swallows_rows_is_said() -> None:
    rows = [(text, label) for text, label in texts(200)]
    lines = table([("text", "label"), *rows]).splitlines()
    assert "swallowed" not in seen_of("\n".join(lines))
    lines[20] = '"' + lines[20].replace(",", " ")
    lines[45] = lines[45].replace(",", '",')
    assert "26 lines" in seen_of("\n".join(lines)) and "swallowed" in seen("a.csv")
    paragraphs = [("\n".join([text] * 12), label) for text, label in texts(60)]
    quoted = [(f'"{text}"', label) for text, label in paragraphs]
    assert "swallowed" not in seen_of(table([("text", "label"), *quoted]))


def seen_of(content: str) -> str:
    Path("a.csv").write_text(content)
    return seen("a.csv")


def test_lines_of_types_are_refused_with_what_removes_them() -> None:
    """As Orange writes its tables; texts have few words on their first line, and blank lines."""
    head = [("Category", "Text"), ("d", "string"), ("class", "")]
    rows = [(label, text) for text, label in texts()]
    Path("a.tab").write_text(table([*head, *rows], "\t") + "\n")
    with pytest.raises(ValueError, match="line 2") as refused:
        proposed("a.tab")
    subprocess.run(command_of(str(refused.value)), shell=True, check=True)
    proposal = proposed("a.tsv")
    assert proposal.study.kind == "classification"
    assert "Category is predicted (2 different values)" in seen("a.tsv")


def test_texts_between_tabs_are_no_words_with_tags() -> None:
    Path("a.txt").write_text(
        table([("a kind", "the text"), *((b, a) for a, b in texts())], "\t") + "\n"
    )
    assert proposed("a.txt").study.kind == "classification"


def test_rows_with_empty_cells_are_counted_and_left_out() -> None:
    rows = [(text, "" if i in (5, 9) else label) for i, (text, label) in enumerate(texts())]
    rows[12] = ("", "good")
    Path("a.csv").write_text(table([("text", "label"), *rows]))
    proposal = proposed("a.csv")
    assert "3 of 60 rows lack text or label and are left out" in seen("a.csv")
    (task,) = YAML(typ="safe").load(proposal.text)["tasks"].values()
    source = task["source"]
    assert source["empty_cells"] == "skip"
    read = SOURCES.build(source, where="source").examples(KINDS["classification"])
    assert len({each.row["text"] for each in read}) == 57


def test_test_rows_without_labels_are_no_rows_to_leave_out() -> None:
    """Beside a train file that lacks a label: the answers of the test file are not published."""
    folder = Path("folder")
    folder.mkdir()
    rows = [(text, "" if i == 5 else label) for i, (text, label) in enumerate(texts())]
    (folder / "train.csv").write_text(table([("text", "label"), *rows]))
    hidden = [(f"{text} again", "") for text, _ in rows[:30]]
    (folder / "test.csv").write_text(table([("text", "label"), *hidden]))
    told = seen("folder")
    assert "1 of 60 rows lack text or label" in told and "test.csv has no answers" in told


def test_few_test_rows_of_what_has_no_accuracy_are_said() -> None:
    rows = [{"source": text, "target": f"it is {text}"} for text, _ in texts()]
    Path("a.json").write_text(json.dumps(rows))
    assert "test rows are few" in seen("a.json")


# Words and folders -------------------------------------------------------------------------------


def test_words_with_unlike_numbers_of_columns_are_refused_with_what_mends_them() -> None:
    """As a morphological analyser writes unknown words: without a reading."""
    lines = [line.split("\t") for line in tagged().splitlines()]
    lines = [
        [w[0], "noun", *(["reading"] * (i % 3)), w[1]] if w != [""] else w
        for i, w in enumerate(lines)
    ]
    Path("a b.txt").write_text("\n".join("\t".join(line) for line in lines) + "\n")
    with pytest.raises(ValueError, match="3 to 5 columns") as refused:
        proposed("a b.txt")
    subprocess.run(command_of(str(refused.value)), shell=True, check=True)
    assert Path("a b.conll").read_text() == tagged()
    assert proposed("a b.conll").study.kind == "tagging"


def test_a_folder_of_texts_says_how_they_are_read() -> None:
    for name in ("neg", "pos"):
        Path("data").mkdir(exist_ok=True)
        Path(f"data/{name}.txt").write_text("\n".join(text for text, _ in texts()))
    with pytest.raises(ValueError, match=r"2 \.txt files.*DATA=FILE.*--text"):
        proposed("data")
