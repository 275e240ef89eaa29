"""Files are complete or absent."""

import os
from pathlib import Path

import pytest

from stages.core.artifacts import (
    replacing,
    whole_contents,
    write_contents,
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


def test_whole_contents_are_none_if_a_file_is_lost_or_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "entry"
    (folder / "below").mkdir(parents=True)
    (folder / "below/a").write_text("1")
    assert whole_contents(folder) is None
    write_contents(folder)
    assert whole_contents(folder) == ["below/a"]
    (folder / "below/a").write_text("2")
    assert whole_contents(folder) is None
    (folder / "below/a").unlink()
    assert whole_contents(folder) is None
