"""Clear columns are guessed; for others the error lists columns and flags."""

import re
from pathlib import Path

import pytest

from stages.core.artifacts import Json
from tests.labelled_files import objects, proposed, table, texts


def put(*columns: str, **more) -> str:
    """Writes texts, labels and ``more``, columns made from a row's number."""
    names = [*columns, *more]
    rows = [(*row, *(make(i) for make in more.values())) for i, row in enumerate(texts())]
    Path("a.csv").write_text(table([names, *rows]))
    return "a.csv"


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
    may_be_a_scale = kind != "regression" and str(value(1)).isdecimal()
    assert any("--task regression" in note for note in proposal.notes) == may_be_a_scale


def test_guess_lists_columns_with_an_example_where_several_may_be_predicted() -> None:
    path = put("review", "stars", author=lambda i: "abc"[i % 3])
    with pytest.raises(ValueError, match=re.escape("(stars, author)")) as refused:
        proposed(path)
    message = str(refused.value)
    assert "--label NAME" in message
    assert "author: 3 different in 60 rows, such as 'a'" in message
    proposal = proposed(path, columns={"label": "author"})
    assert proposal.study.source["label"] == "author"
    assert any("Not read: stars" in note for note in proposal.notes)


def test_guess_asks_which_text_is_read() -> None:
    path = put("title", "label", abstract=lambda i: f"this is the text {i}")
    with pytest.raises(ValueError, match="classification needs text, .*--text NAME"):
        proposed(path)
    source = proposed(path, columns={"text": "abstract"}).study.source
    assert source["text"] == "abstract" and "text_pair" not in source


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
    source = proposed("a.csv").study.source
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
    assert proposal.study.kind == "seq2seq" and "test rows are few" in proposal.text
