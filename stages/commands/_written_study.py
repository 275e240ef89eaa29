"""Writes a study to params.yaml without losing the study that is there."""

import hashlib
import subprocess
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


def refuse_loss(otherwise: str) -> None:
    """Raises ValueError if params.yaml is kept nowhere else: its text differs from the last one
    that a command wrote, from the last commit and from each file in ``studies/``. ``otherwise`` is
    the advice that ends the message."""
    if not PATH.exists():
        return
    text = PATH.read_text(encoding="utf-8")
    command = ["git", "show", f"HEAD:./{PATH}"]
    committed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    kept = (study.read_text(encoding="utf-8") for study in STUDIES.glob("*.yaml"))
    is_written = WRITTEN.exists() and WRITTEN.read_text() == _digest(text)
    if not (is_written or text == committed or text in kept):
        raise ValueError(
            f"{PATH} is neither as it was committed nor one of {STUDIES}/: keep it (`cp {PATH} "
            f"{STUDIES}/NAME.yaml`), {otherwise}"
        )


def write(text: str) -> None:
    """Writes params.yaml, and its hash to WRITTEN, so that commands may overwrite the study until
    it is edited."""
    for file, content in ((PATH, text), (WRITTEN, _digest(text))):
        with replacing(file) as new:
            new.write_text(content, encoding="utf-8")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
