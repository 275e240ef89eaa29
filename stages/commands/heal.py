"""Mend the files that a killed DVC left unfinished, so that `dvc repro` works again.

DVC writes `dvc.lock` and `.dvc/tmp/rwlock` in place: a kill in that moment leaves half a file, and
every later `dvc repro` refuses it. This command removes a broken rwlock and incomplete entries of
`dvc.lock`; their stages come from DVC's run cache and are not computed again. It also removes the
empty folders of the run cache: a kill before the first record of a stage leaves one, on which every
later `dvc repro` of that stage fails. Does nothing while another DVC runs in this folder.
"""

import json
import os
import re
from configparser import ConfigParser
from contextlib import suppress
from pathlib import Path

import psutil

from stages.commands._shared import parser_of
from stages.core.artifacts import replacing
from stages.core.process import exit_on_mistake

LOCK, DVC = Path("dvc.lock"), Path(".dvc")
RWLOCK = DVC / "tmp/rwlock"
EMPTY = "schema: '2.0'\nstages: {}\n"


def main() -> None:
    parser_of("heal", __doc__).parse_args()
    exit_on_mistake(heal)


def heal() -> None:
    """Raises ValueError if the damage of dvc.lock cannot come from a kill while it was written."""
    if running_dvc() is not None:
        return
    with suppress(FileNotFoundError):
        try:
            json.loads(RWLOCK.read_text(encoding="utf-8"))
        except ValueError:  # the file only lists what a running DVC reads and writes
            RWLOCK.unlink()
            print(f"Removed {RWLOCK}, which a killed DVC left unfinished")
    if LOCK.exists():
        _heal_lock()
    settings = ConfigParser()
    settings.read([DVC / "config", DVC / "config.local"])
    cache = os.path.normpath(DVC / settings.get("cache", "dir", fallback="cache"))
    for folder in Path(cache, "runs").glob("*/*/"):
        with suppress(OSError):  # it has records
            folder.rmdir()
            print(f"Removed {folder}, which a killed DVC left empty")


def running_dvc() -> int | None:
    """Returns the pid of another DVC that runs in this folder, or None if there is none."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it has ended, or is another user's
            is_dvc = any(Path(part).name == "dvc" for part in process.cmdline()[:3])
            if is_dvc and process.pid != os.getpid() and Path(process.cwd()) == Path.cwd():
                return process.pid
    return None


def _heal_lock() -> None:
    """Removes the incomplete entries of dvc.lock. A kill cuts off the end of the file: the last
    line, and perhaps the last entry, is incomplete."""
    text = LOCK.read_text(encoding="utf-8")
    if text.endswith("\n") and _is_whole(text):
        return
    lines = text[: text.rfind("\n") + 1]
    entries = [match.start() for match in re.finditer(r"^  [^ -]", lines, re.MULTILINE)]
    parts = (lines, lines[: entries[-1]] if entries else "")
    whole = next((part for part in parts if _is_whole(part)), None)
    if whole is None and len(entries) > 1:
        raise ValueError(f"{LOCK}: cannot be read; `git checkout {LOCK}`, then `dvc repro`")
    with replacing(LOCK) as path:
        path.write_text(whole or EMPTY, encoding="utf-8")
    print(f"Removed the end of {LOCK}, which a killed DVC left unfinished")


def _is_whole(text: str) -> bool:
    """Whether DVC can read a text as dvc.lock."""
    from dvc.schema import COMPILED_LOCKFILE_SCHEMA
    from ruamel.yaml import YAML, YAMLError
    from voluptuous import Invalid

    try:
        COMPILED_LOCKFILE_SCHEMA(YAML(typ="safe").load(text))
    except (YAMLError, Invalid):
        return False
    return True


if __name__ == "__main__":
    main()
