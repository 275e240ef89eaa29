"""The means to reproduce a report: files, packages, commands, commit and machine.

Files, packages and commands are the same wherever the study runs, and are on both pages. The commit
and the machine are on the HTML page only, since committing comparison.md makes a new commit.
"""

import hashlib
import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from stages.core.params import Compute
from stages.core.study_file import PATH

FILES = (PATH, Path("dvc.yaml"), Path("requirements.lock"))
STUDIES = Path("studies")
PACKAGES = (  # those that affect results: training and its data, baselines, statistics
    *("torch", "numpy", "sentencepiece", "transformers", "tokenizers", "datasets"),
    *("scikit-learn", "scipy", "sacrebleu"),
)
DIGITS = 16
SHA256 = f"first {DIGITS} digits of SHA-256"


class Commit(NamedTuple):
    """The commit at which a report was written."""

    id: str
    changed: list[str]  # files that affect results and differ from the commit
    origin: str  # address to clone from; "REPOSITORY" if others cannot reach it


def files() -> list[dict[str, str]]:
    """Returns FILES with the first digits of their ``sha256sum``."""
    rows = []
    for path in FILES:
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "missing"
        rows.append({"file": str(path), SHA256: digest[:DIGITS]})
    return rows


def packages() -> list[dict[str, str]]:
    """Returns the installed versions of Python and PACKAGES."""
    versions = {"Python": platform.python_version()} | {name: version(name) for name in PACKAGES}
    return [{"package": name, "version": number} for name, number in versions.items()]


def commands() -> list[str]:
    """Returns the commands that make the report in a clone."""
    return [*(f"cp {path} {PATH}" for path in _study()), "make repro"]


def _study() -> list[Path]:
    """Returns, in a list, the file of STUDIES that equals params.yaml, if there is one."""
    params = PATH.read_bytes() if PATH.exists() else b""
    return [path for path in sorted(STUDIES.glob("*.yaml")) if path.read_bytes() == params][:1]


def commit() -> Commit | None:
    """Returns the current commit; None without git, a repository or a commit."""
    head = _git("rev-parse", "--verify", "HEAD")
    if head is None:
        return None
    listing = ("status", "--porcelain", "--no-renames", "--untracked-files=all", "-z")
    status = _git(*listing, "--", "stages", *map(str, [*FILES, *_study()])) or ""
    changed = [entry[3:] for entry in status.split("\0") if entry]
    # The address, without credentials, is shown only if others can reach it.
    origin = (_git("remote", "get-url", "origin") or "").strip()
    address = re.sub(r"^(https?://)[^/]*@", r"\1", origin)
    is_shareable = re.match(r"(?:https?|ssh|git)://|\w+@[\w.-]+:", address)
    return Commit(head.strip(), changed, address if is_shareable else "REPOSITORY")


def _git(*arguments: str) -> str | None:
    """Returns the output of git; None if it fails."""
    command = ["git", "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout


def machine(compute: Compute) -> list[dict[str, str]]:
    """Returns properties of this machine, and the device, precision and threads of the study."""
    import torch  # takes seconds

    from stages.training.device import resolve
    from stages.training.meter import processor

    try:
        device = resolve(compute, threads=torch.get_num_threads())  # leaves the threads as they are
        computed = f"on {device.device} in {device.precision}, {compute.threads} threads"
    except ValueError:
        computed = f"on {compute.device}, which this machine does not have"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    about = {
        "system": platform.platform(),
        "processor": f"{processor()}, {os.cpu_count()} cores",
        "memory": f"{memory / 2**30:.1f} GiB",
        "GPU": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "computation": computed,
    }
    return [{"property": key, "value": value} for key, value in about.items()]
