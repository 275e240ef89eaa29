"""A study that is put in the place of params.yaml, over no study that is kept nowhere else."""

import hashlib
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from stages.core.artifacts import replacing
from stages.core.params import PATH, load

STUDIES = Path("studies")
MARK = "# Written by python -m stages.commands, "
DIGITS = 12  # hexadecimal, of the hash that says whether the text was edited since


def refuse_faults(text: str) -> None:
    """Raises ValueError for a study that `check_params` would refuse."""
    from stages.checking.faults import find_faults

    with TemporaryDirectory() as folder:
        path = Path(folder, PATH.name)
        path.write_text(text, encoding="utf-8")
        if faults := list(find_faults(load(path))):
            raise ValueError("\n".join(faults))


def refuse_loss(path: Path, otherwise: str) -> None:
    """Raises ValueError if the file is a study that is found nowhere else: neither as a command
    wrote it, nor as git has it, nor a copy in ``studies/``. ``otherwise`` says what else to do."""
    if not path.exists():
        return
    text = path.read_text(encoding="utf-8")
    first, _, rest = text.partition("\n")
    if first == f"{MARK}{_digest(rest)}" or _is_kept(text) or text == _committed(path):
        return
    raise ValueError(
        f"{path} is neither as it was committed nor one of {STUDIES}/: keep it (`cp {path} "
        f"{STUDIES}/mine.yaml`), {otherwise}"
    )


def write(path: Path, text: str) -> None:
    """One of ``studies/`` as it is; another text below a line that says that a command wrote it,
    and its hash."""
    head = "" if _is_kept(text) else f"{MARK}{_digest(text)}\n"
    with replacing(path) as new:
        new.write_text(f"{head}{text}", encoding="utf-8")


def _is_kept(text: str) -> bool:
    return any(text == study.read_text(encoding="utf-8") for study in STUDIES.glob("*.yaml"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def _committed(path: Path) -> str | None:
    """None where git knows no such file."""
    command = ["git", "show", f"HEAD:./{path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None
