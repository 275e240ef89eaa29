"""Files are complete or absent."""

import os

import pytest

from stages.core.artifacts import (
    read_json,
    read_jsonl,
    replacing,
    sha256,
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
