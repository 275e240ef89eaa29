"""Files are complete or absent."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stages.core import artifacts
from stages.core.artifacts import (
    CONTENTS,
    bounded_sha256,
    read_json,
    read_jsonl,
    replacing,
    sha256,
    whole_contents,
    write_contents,
    write_json,
    write_jsonl,
)


def test_replacing_keeps_the_old_if_the_new_is_not_finished(tmp_path) -> None:
    target = tmp_path / "folder"
    with replacing(target) as new:
        new.mkdir()
        (new / "a").write_text("old")
    with pytest.raises(RuntimeError), replacing(target) as new:
        new.mkdir()
        (new / "a").write_text("half")
        raise RuntimeError
    assert (target / "a").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_replacing_leaves_nothing_of_the_old_folder(tmp_path) -> None:
    target = tmp_path / "folder"
    for name in ("a", "b"):
        with replacing(target) as new:
            new.mkdir()
            (new / name).touch()
    assert [p.name for p in target.iterdir()] == ["b"]


def test_replacing_keeps_a_file_until_the_new_one_takes_its_place(tmp_path, monkeypatch) -> None:
    target, renamed, seen = tmp_path / "file", os.replace, []

    def rename(source, destination) -> None:
        seen.append(target.read_text())
        renamed(source, destination)

    target.write_text("old")
    monkeypatch.setattr("stages.core.artifacts.os.replace", rename)
    with replacing(target) as new:
        new.write_text("new")
    assert seen == ["old"] and target.read_text() == "new"
    monkeypatch.undo()
    with replacing(target) as new:  # a folder replaces a file
        new.mkdir()
    assert target.is_dir()


def test_replacing_removes_what_an_interrupted_writer_left(tmp_path) -> None:
    (tmp_path / ".folder.partial").mkdir()
    (tmp_path / ".folder.partial" / "left").touch()
    with replacing(tmp_path / "folder") as new:
        new.mkdir()
    assert not list((tmp_path / "folder").iterdir())


def test_write_json_round_trips(tmp_path) -> None:
    rows = [{"text": "é\u2028\n", "n": 1}, {"text": "", "n": 2}]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    write_json(tmp_path / "one.json", rows[0])
    assert read_jsonl(tmp_path / "rows.jsonl") == rows
    assert read_json(tmp_path / "one.json") == rows[0]


def test_sha256_is_of_contents_in_their_order(tmp_path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text("1")
    b.write_text("2")
    assert sha256(a, b) != sha256(b, a)
    before = sha256(a)
    a.write_text("3")
    assert sha256(a) != before


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    """A folder with the hashes of its files; a file is next to it."""
    (tmp_path / "beside").write_text("1")
    folder = tmp_path / "entry"
    (folder / "below").mkdir(parents=True)
    (folder / "below/a").write_text("1")
    write_contents(folder)
    return folder


def list_file(name: str) -> Callable[[Path], object]:
    """Lists a file under its true hash."""

    def change(entry: Path) -> None:
        digest = sha256(entry / name) if (entry / name).is_file() else "x"
        write_json(entry / CONTENTS, {name: digest})

    return change


def link_beside(entry: Path) -> None:
    (entry / "below/a").unlink()
    (entry / "below/a").symlink_to("../../beside")


def pipe(entry: Path) -> None:
    (entry / "below/a").unlink()
    os.mkfifo(entry / "below/a")


def nest(entry: Path) -> None:
    (entry / CONTENTS).write_text("[" * 100_000)


def grow(entry: Path) -> None:
    with (entry / "below/a").open("r+b") as file:
        file.truncate(artifacts.MOST_FILE_BYTES + 1)


@pytest.mark.parametrize(
    "change",
    [list_file("../beside"), list_file("/etc/passwd"), list_file("/dev/zero")]
    + [list_file(name) for name in ("below", "below/../below/a", "./below/a", "below//a")]
    + [link_beside, pipe, nest, grow],
)
def test_whole_contents_reads_no_file_outside_the_folder(
    entry: Path, change: Callable[[Path], object]
) -> None:
    assert whole_contents(entry) == ["below/a"]
    change(entry)
    assert whole_contents(entry) is None


def test_bounded_sha256_reads_what_a_file_had_when_it_was_opened(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"some text")
    assert bounded_sha256(file) == sha256(file)
    for target in ("/dev/zero", file):
        link = tmp_path / "link"
        link.symlink_to(target)
        with pytest.raises(OSError, match="symbolic link"):
            bounded_sha256(link)
        link.unlink()
    with pytest.raises(ValueError, match="no regular file"):
        bounded_sha256(Path("/dev/zero"))
