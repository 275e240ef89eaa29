"""Data that no study can be made of: one clear line each."""

from pathlib import Path

import pytest

from tests.labelled_files import classified, proposed, table, texts


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


MANY = [(f"{text} {i}", f"kind {i // 3}") for i, (text, _) in enumerate(texts(3000))]
IDS = [(text, f"x{i}") for i, (text, _) in enumerate(texts())]
RARE = [*texts(), ("one more text of them", "rare")]

BAD: dict[str, tuple[str, bytes, str]] = {
    "empty": ("a.csv", b"", "empty"),
    "header only": ("a.csv", b"text,label\n", "no rows"),
    "one column": ("a.csv", table([("text",), *((t,) for t, _ in texts())]).encode(), "one column"),
    "ids": ("a.csv", table([("text", "label"), *IDS]).encode(), "ids or free text"),
    "many labels": ("a.csv", table([("text", "label"), *MANY]).encode(), "1,000 labels"),
    "one label": (
        "a.csv",
        table([("text", "label"), *((t, "same") for t, _ in texts())]).encode(),
        "label",
    ),
    "numbers": (
        "a.csv",
        table([("x", "label"), *((i / 7, "ab"[i % 2]) for i in range(60))]).encode(),
        "no column with texts",
    ),
    "mixed encodings": (
        "a.csv",
        f"{classified()}größe zählt,good\n".encode() + "größe gilt,good\n".encode("latin-1"),
        "line 63",
    ),
    "another encoding": (
        "a.csv",
        classified().encode() + "größe gilt,good\n".encode("latin-1"),
        "iconv",
    ),
    "uneven rows": ("a.csv", b"text,label\nodd, too,x\n", "line 2"),
    "a format that is unknown": ("a.xyz", b"\x00\x01 binary\n", "format"),
    "no labels": ("a.txt", b"Only text.\nAnd more of it here.\n", "--text"),
    "few rows": ("a.csv", table([("text", "label"), *texts(4)]).encode(), "too few"),
}


@pytest.mark.parametrize("name", BAD)
def test_it_is_refused_in_one_line(name: str) -> None:
    path, content, said = BAD[name]
    Path(path).write_bytes(content)
    with pytest.raises(ValueError, match=said) as refused:
        proposed(path)
    assert "\n" not in str(refused.value)


def test_a_label_that_train_lacks_is_refused() -> None:
    Path("data").mkdir()
    Path("data/train.csv").write_text(table([("text", "label"), *texts(40)]))
    Path("data/dev.csv").write_text(table([("text", "label"), *texts(50)[40:]]))
    rows = [*texts(60)[50:], ("one more of them", "rare")]
    Path("data/test.csv").write_text(table([("text", "label"), *rows]))
    with pytest.raises(ValueError, match="rare"):
        proposed("data")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"columns": {"label": ["grade"]}}, "grade.*review, stars"),
        ({"columns": {"label": ["review"]}}, "free text"),
        ({"budgets": [1000]}, "--labels"),
        ({"splits": {"train": ["b.csv"]}}, "is a file"),
    ],
)
def test_flags_that_do_not_fit(asked: dict, said: str) -> None:
    Path("a.csv").write_text(classified())
    with pytest.raises(ValueError, match=said):
        proposed("a.csv", **asked)


def test_a_missing_file_and_a_folder_without_data() -> None:
    with pytest.raises(ValueError, match="no such file"):
        proposed("b.csv")
    Path("empty").mkdir()
    with pytest.raises(ValueError, match="--text"):
        proposed("empty")
