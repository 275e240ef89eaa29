"""Files are complete or absent."""

from pathlib import Path

import pytest

from stages.core.artifacts import replacing, whole_contents, write_contents


def test_replacing_keeps_the_old_if_the_new_is_not_finished(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    with pytest.raises(RuntimeError), replacing(target) as new:
        new.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old" and [*tmp_path.iterdir()] == [target]


def test_replacing_leaves_nothing_of_the_old_or_of_an_interrupted_writer(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    (tmp_path / ".folder.partial").mkdir()
    (tmp_path / ".folder.partial" / "left").touch()
    for name in ("a", "b"):
        with replacing(target) as new:
            new.mkdir()
            (new / name).touch()
    assert [p.name for p in target.iterdir()] == ["b"]


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
