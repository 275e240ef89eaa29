"""Atomic writes: everything is written to a temporary path and then renamed into place."""

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

Json = dict[str, Any]  # an object of a JSON file
CONTENTS = "contents.json"  # a file with the hashes of all other files in its folder
MOST_LISTED_BYTES = 2**20  # largest contents.json that is read
MOST_FILE_BYTES = 2**37  # largest file that contents.json may list
PART_BYTES = 2**20


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path for a file or a folder, which is renamed to ``path`` on success.

    An earlier file stays until the new one replaces it; an earlier folder is missing for a moment.
    Leftovers of an interrupted writer are removed first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.partial")
    remove(temporary)
    try:
        yield temporary
    except BaseException:
        remove(temporary)
        raise
    if temporary.is_dir() or path.is_dir():  # os.replace cannot replace a folder
        remove(path)
    os.replace(temporary, path)


def remove(path: Path) -> None:
    """Deletes a file or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_json(path: Path, value: Mapping[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> Json:
    return json.loads(path.read_text(encoding="utf-8"))


def write_jsonl(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def read_jsonl(path: Path) -> list[Json]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def write_contents(folder: Path) -> None:
    """Writes the hashes of a folder's files to ``contents.json``, for ``whole_contents``."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    hashes = {file.relative_to(folder).as_posix(): sha256(file) for file in files}
    write_json(folder / CONTENTS, hashes)


def whole_contents(folder: Path) -> list[str] | None:
    """Returns the paths in the folder of all files that ``contents.json`` lists; None if it or one
    of the files is missing or damaged. The folder may come from a stranger, so no file outside it
    is read, and no file of more than ``MOST_FILE_BYTES``."""
    try:
        if not is_own_file(folder / CONTENTS, folder, MOST_LISTED_BYTES):
            return None
        hashes = read_json(folder / CONTENTS)
        for name, value in hashes.items():
            is_plain = PurePosixPath(name).as_posix() == name and ".." not in name.split("/")
            if not is_plain or not is_own_file(folder / name, folder):
                return None
            if bounded_sha256(folder / name) != value:
                return None
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return [*hashes]


def is_own_file(file: Path, folder: Path, most_bytes: int = MOST_FILE_BYTES) -> bool:
    """Whether ``file`` is a regular file inside the folder with at most ``most_bytes`` bytes."""
    target = Path(os.path.realpath(file))
    is_own = target.is_relative_to(os.path.realpath(folder)) and target.is_file()
    return is_own and target.stat().st_size <= most_bytes


def bounded_sha256(file: Path) -> str:
    """Returns ``sha256`` of a regular file. Reads at most as many bytes as the file had when it was
    opened, since someone else may be extending it.

    Raises OSError for a link, and ValueError for a file that is not regular or too large.
    """
    digest = hashlib.sha256()
    opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(opened, "rb") as content:
        about = os.fstat(opened)
        if not stat.S_ISREG(about.st_mode) or about.st_size > MOST_FILE_BYTES:
            raise ValueError(f"{file}: is no regular file, or is too large")
        left = about.st_size
        while left and (part := content.read(min(left, PART_BYTES))):
            digest.update(part)
            left -= len(part)
    return hashlib.sha256(digest.digest()).hexdigest()


def is_endless(path: Path) -> bool:
    """Whether ``path`` is a pipe or a device, which might never end."""
    return path.exists() and not path.is_file() and not path.is_dir()


def refuse_endless(path: Path) -> None:
    """Raises ValueError if a path or a file below it is a pipe or a device: DVC or a stage might
    read it without end. The message begins with the setting ``path``."""
    below = (Path(parent, name) for parent, _, names in os.walk(path) for name in names)
    for file in chain([path], below):
        if is_endless(file):
            raise ValueError(f"path: {file} must be a regular file")


def sha256_of_tree(path: Path) -> str:
    """Returns one hash of a file, or of the names and contents of all files in a folder."""
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            digest.update(file.relative_to(path).as_posix().encode() + b"\0")
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


def sha256(*paths: Path) -> str:
    """Returns one hash of the contents of files, in the order given."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()
