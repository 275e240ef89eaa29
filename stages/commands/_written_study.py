"""Writes a study to params.yaml without losing the study that is there."""

import hashlib
import subprocess
from itertools import chain, count
from pathlib import Path
from tempfile import TemporaryDirectory

from stages.core import paths
from stages.core.artifacts import replacing
from stages.core.study_file import PATH, load

STUDIES = Path("studies")
WRITTEN = paths.SCRATCH / "written_study"  # the hash of the text that a command wrote last


def refuse_faults(text: str, source: str) -> None:
    """Raises ValueError for a study that the root stage would refuse; ``source`` is the name of the
    study in the message."""
    from stages.checking.faults import find_faults

    with TemporaryDirectory() as folder:
        path = Path(folder, PATH.name)
        path.write_text(text, encoding="utf-8")
        try:
            faults = list(find_faults(load(path)))
        except ValueError as error:
            raise ValueError(str(error).replace(str(path), source)) from None
    if faults:
        raise ValueError("\n".join(faults))


def refuse_loss(path: Path, otherwise: str) -> None:
    """Raises ValueError if the file holds a study that is kept nowhere else: its text differs from
    the last one that a command wrote, from the last commit and from each file in ``studies/``.
    ``otherwise`` is the advice that ends the message."""
    if not path.exists():
        return
    text = path.read_text(encoding="utf-8")
    committed = subprocess.run(
        ["git", "show", f"HEAD:./{path}"], capture_output=True, text=True, check=False
    )
    kept = (study.read_text(encoding="utf-8") for study in STUDIES.glob("*.yaml"))
    is_committed = committed.returncode == 0 and committed.stdout == text
    is_written = WRITTEN.exists() and WRITTEN.read_text() == _digest(text)
    if is_committed or is_written or text in kept:
        return
    names = chain(["mine.yaml"], (f"mine_{number}.yaml" for number in count(2)))
    free = next(STUDIES / name for name in names if not (STUDIES / name).exists())
    raise ValueError(
        f"{path} is neither as it was committed nor one of {STUDIES}/: keep it (`cp {path} {free}`)"
        f", {otherwise}"
    )


def write(path: Path, text: str) -> None:
    """Writes a study, and its hash to WRITTEN, so that commands may overwrite the study until it is
    edited."""
    for file, content in ((path, text), (WRITTEN, _digest(text))):
        with replacing(file) as new:
            new.write_text(content, encoding="utf-8")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
