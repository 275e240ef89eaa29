"""Clear columns are guessed; for others the error lists columns and flags. Data that cannot make a
study are refused with one clear error."""

import re
from pathlib import Path

import pytest

from stages.core.artifacts import Json
from tests.labelled_files import classified, objects, proposed, table, texts


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (lambda i: i / 7, "regression"),
        (lambda i: i % 5, "classification"),
        (lambda i: "abc"[i % 3], "classification"),
        (lambda i: i % 25, None),  # many whole numbers
        (lambda i: ("Rome; Italy", "Bern; Swiss")[i % 2], None),  # perhaps several labels in a cell
    ],
)
def test_guess_takes_the_kind_from_the_values_or_asks_for_it(value, kind: str | None) -> None:
    rows = [(text, value(i)) for i, (text, _) in enumerate(texts(300))]
    Path("a.csv").write_text(table([("text", "grade"), *rows]))
    if kind is None:
        with pytest.raises(ValueError, match="--task classification.*--task (regr|multi)"):
            proposed("a.csv")
    proposal = proposed("a.csv", task=None if kind else "classification")
    assert proposal.study.kind == (kind or "classification")


def test_guess_lists_columns_with_an_example_where_several_may_be_predicted() -> None:
    rows = [(*row, "abc"[i % 3]) for i, row in enumerate(texts())]
    Path("a.csv").write_text(table([("review", "stars", "author"), *rows]))
    with pytest.raises(ValueError, match=re.escape("(stars, author)")) as refused:
        proposed("a.csv")
    assert "--label NAME" in str(refused.value)
    assert re.search(r"author: 3 different in 60 .*such as 'a'", str(refused.value))
    proposal = proposed("a.csv", columns={"label": "author"})
    assert proposal.study.entry.source["label"] == "author"
    assert any("Not read: stars" in note for note in proposal.notes)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", str),  # as pandas writes an index
        ("Unnamed: 0", lambda i: i + i // 9),  # after rows were left out
        ("place", str),
        ("post_id", lambda i: f"{i:032x}"),
        ("made", lambda i: f"https://example.org/{i % 4}"),
        ("made", lambda i: f"2016-09-{i % 4 + 10} 10:22:34"),
        ("made", lambda i: f"{i % 4 + 1}/12/2016"),
    ],
)
def test_guess_takes_ids_addresses_and_times_for_no_text_and_no_label(name: str, value) -> None:
    rows = [(value(i), *row) for i, row in enumerate(texts())]
    Path("a.csv").write_text(table([(name, "content", "author"), *rows]))
    source = proposed("a.csv").study.entry.source
    assert (source["text"], source["label"]) == ("content", "author")


def test_guess_takes_a_list_for_tags_only_if_it_is_as_long_as_the_words() -> None:
    def rows(tags) -> list[Json]:
        return [{"tokens": [f"a{i}", "b"][: 1 + i % 2], "tags": tags(i)} for i in range(60)]

    Path("a.jsonl").write_text(objects(rows(lambda i: ["O", "B-X"][: 1 + i % 2])))
    assert proposed("a.jsonl").study.kind == "tagging"
    Path("a.jsonl").write_text(objects(rows(lambda i: ["O", "B-X"][: 1 + (i % 2 or i == 6)])))
    with pytest.raises(ValueError, match="line 7.*tags"):
        proposed("a.jsonl")
    Path("a.jsonl").write_text(objects(rows(lambda i: ["O"] * 3)))
    with pytest.raises(ValueError, match="--text NAME"):
        proposed("a.jsonl")
    with pytest.raises(ValueError, match="classification needs text"):
        proposed("a.jsonl", columns={"label": "tokens"})  # a flag overrides a guess


def test_guess_asks_which_text_is_written() -> None:
    rows = [{"one": text, "other": f"it is {text}"} for text, _ in texts()]
    Path("a.jsonl").write_text(objects(rows))
    with pytest.raises(ValueError, match="--text NAME --set target=NAME"):
        proposed("a.jsonl")
    proposal = proposed("a.jsonl", columns={"text": "other", "target": "one"})
    assert proposal.study.kind == "seq2seq"


# Refusals ----------------------------------------------------------------------------------------

MANY = [(f"{text} {i}", f"kind {i // 3}") for i, (text, _) in enumerate(texts(3000))]
IDS = [(text, f"x{i}") for i, (text, _) in enumerate(texts())]
SAME = [(text, "same") for text, _ in texts()]
NUMBERS = [(i / 7, "ab"[i % 2]) for i in range(60)]
BAD: dict[str, tuple[str, str, str]] = {
    "empty": ("a.csv", "", "empty"),
    "header only": ("a.csv", "text,label\n", "no rows"),
    "one column": ("a.csv", table([("text",), *((t,) for t, _ in texts())]), "one column"),
    "ids": ("a.csv", table([("text", "label"), *IDS]), "--label"),
    "many labels": ("a.csv", table([("text", "label"), *MANY]), "1,000 different"),
    "one label": ("a.csv", table([("text", "label"), *SAME]), "label: 1 different"),
    "no texts": ("a.csv", table([("x", "label"), *NUMBERS]), "--text NAME"),
    "no header": ("a.tsv", table(texts(), "\t"), "--columns.*header=yes"),
    "a nameless column": ("a.csv", "text,\nx,1\n", "not name column 2"),
    "columns of words": ("a.conll", "a X O\nb Y O\n\n", "--columns"),
    "uneven rows": ("a.csv", "text,label\nodd, too,x\n", "line 2"),
    "no labels": ("a.txt", "Only text.\nAnd more of it here.\n", "--format.*--corpus"),
    "few rows": ("a.csv", table([("text", "label"), *texts(4)]), "too few"),
}


@pytest.mark.parametrize("name", BAD)
def test_propose_refuses_bad_files_and_says_why_in_the_first_line(name: str) -> None:
    path, content, message = BAD[name]
    Path(path).write_text(content)
    with pytest.raises(ValueError, match=message) as refused:
        proposed(path)
    assert path in str(refused.value).splitlines()[0]


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ([*texts(60)[50:], ("one more of them", "rare")], "rare"),
        ([(f"a text of number {i}", "") for i in range(20)], "no row of test has a label"),
        ([(f"a text of number {i}", i % 2) for i in range(20)], "bad, good, but test has 0, 1"),
        (texts(40), "all 40 rows of train are also in test"),
    ],
)
def test_propose_refuses_test_labels_that_train_lacks(test: list, message: str) -> None:
    Path("data").mkdir()
    for name, rows in {"train": texts(40), "dev": texts(50)[40:], "test": test}.items():
        Path(f"data/{name}.csv").write_text(table([("text", "label"), *rows]))
    with pytest.raises(ValueError, match=message):
        proposed("data")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"columns": {"label": "grade"}}, "grade.*review, stars"),
        ({"columns": {"label": "review", "text": "stars"}}, "free text"),
        ({"columns": {"label": "stars", "words": "stars"}}, "words: classification has"),
        ({"label_budgets": [1000]}, "label_budgets"),
        ({"splits": {"train": ["b.csv"]}}, "no such file"),
    ],
)
def test_propose_refuses_flags_that_do_not_fit(asked: dict, said: str) -> None:
    Path("a.csv").write_text(classified())
    with pytest.raises(ValueError, match=said):
        proposed("a.csv", **asked)


def test_propose_refuses_a_missing_file_and_a_folder_without_data() -> None:
    with pytest.raises(ValueError, match="no such file"):
        proposed("b.csv")
    Path("empty").mkdir()
    with pytest.raises(ValueError, match="--format.*--corpus"):
        proposed("empty")
    for name in ("one", "other"):
        Path(f"empty/{name}.csv").write_text(classified())
    with pytest.raises(ValueError, match="train=FILE"):
        proposed("empty")
    with pytest.raises(ValueError, match="no such file.*third.csv"):
        proposed("empty", splits={"train": ["third.csv"]})


def test_propose_says_below_make_how_make_takes_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.odd").write_text("some words")
    for level in (None, "1"):
        if level:
            monkeypatch.setenv("MAKELEVEL", level)
        with pytest.raises(ValueError, match="--format NAME") as error:
            proposed("a.odd")
        assert ("With make: FLAGS=" in str(error.value)) == bool(level)
