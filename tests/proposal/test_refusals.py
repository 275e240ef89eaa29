"""Data that cannot make a study is refused with one clear error."""

from pathlib import Path

import pytest

from tests.labelled_files import classified, proposed, table, texts

MANY = [(f"{text} {i}", f"kind {i // 3}") for i, (text, _) in enumerate(texts(3000))]
IDS = [(text, f"x{i}") for i, (text, _) in enumerate(texts())]
SAME = [(text, "same") for text, _ in texts()]
NUMBERS = [(i / 7, "ab"[i % 2]) for i in range(60)]

BAD: dict[str, tuple[str, bytes, str]] = {
    "empty": ("a.csv", b"", "empty"),
    "header only": ("a.csv", b"text,label\n", "no rows"),
    "one column": ("a.csv", table([("text",), *((t,) for t, _ in texts())]).encode(), "one column"),
    "ids": ("a.csv", table([("text", "label"), *IDS]).encode(), "--label"),
    "many labels": ("a.csv", table([("text", "label"), *MANY]).encode(), "1,000 different"),
    "one label": ("a.csv", table([("text", "label"), *SAME]).encode(), "label: 1 different"),
    "no texts": ("a.csv", table([("x", "label"), *NUMBERS]).encode(), "--text NAME"),
    "no header": ("a.tsv", table(texts(), "\t").encode(), "--columns.*header=yes"),
    "a nameless column": ("a.csv", b"text,\nx,1\n", "not name column 2"),
    "columns of words": ("a.conll", b"a X O\nb Y O\n\n", "--columns"),
    "another encoding": (
        "a.csv",
        classified().encode() + "größe gilt,good\n".encode("latin-1"),
        "iconv",
    ),
    "uneven rows": ("a.csv", b"text,label\nodd, too,x\n", "line 2"),
    "no labels": ("a.txt", b"Only text.\nAnd more of it here.\n", "--format.*--corpus"),
    "few rows": ("a.csv", table([("text", "label"), *texts(4)]).encode(), "too few"),
}


@pytest.mark.parametrize("name", BAD)
def test_propose_refuses_bad_files_and_says_why_in_the_first_line(name: str) -> None:
    path, content, message = BAD[name]
    Path(path).write_bytes(content)
    with pytest.raises(ValueError, match=message) as refused:
        proposed(path)
    assert path in str(refused.value).splitlines()[0]


def test_propose_refuses_a_label_that_train_lacks() -> None:
    Path("data").mkdir()
    Path("data/train.csv").write_text(table([("text", "label"), *texts(40)]))
    Path("data/dev.csv").write_text(table([("text", "label"), *texts(50)[40:]]))
    rows = [*texts(60)[50:], ("one more of them", "rare")]
    Path("data/test.csv").write_text(table([("text", "label"), *rows]))
    with pytest.raises(ValueError, match="rare"):
        proposed("data")


def test_propose_names_a_file_without_labels() -> None:
    Path("data").mkdir()
    Path("data/train.csv").write_text(table([("text", "label"), *texts(60)]))
    rows = [(f"a text of number {i}", "") for i in range(20)]
    Path("data/test.csv").write_text(table([("text", "label"), *rows]))
    with pytest.raises(ValueError, match="no row of test has a label.*train=FILE"):
        proposed("data")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"columns": {"label": "grade"}}, "grade.*review, stars"),
        ({"columns": {"label": "review", "text": "stars"}}, "free text"),
        ({"columns": {"label": "stars", "words": "stars"}}, "words: classification has"),
        ({"label_budgets": [1000]}, "label_budgets"),
        ({"splits": {"train": ["b.csv"]}}, "is a file"),
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
    with pytest.raises(ValueError, match="third.csv: the file is missing"):
        proposed("empty", splits={"train": ["third.csv"]})
