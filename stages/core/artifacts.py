"""Atomic writes: everything is written to a temporary path and then renamed into place."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Json = dict[str, Any]  # an object of a JSON file
CONTENTS = "contents.json"  # a file with the hashes of all other files in its folder


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path for a file or a folder, which is renamed to ``path`` on success. An
    earlier file stays until the new one replaces it; an earlier folder is missing for a moment."""
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
    of the files is missing or damaged."""
    try:
        hashes = read_json(folder / CONTENTS)
        is_whole = all(sha256(folder / name) == value for name, value in hashes.items())
    except (OSError, ValueError, AttributeError):
        return None
    return [*hashes] if is_whole else None


def sha256_of_tree(path: Path) -> str:
    """Returns one hash of a file, or of the names and contents of all files in a folder."""
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            digest.update(file.relative_to(path).as_posix().encode() + b"\0")
            digest.update(_digest(file))
    return digest.hexdigest()


def sha256(*paths: Path) -> str:
    """Returns one hash of the contents of files, in the order given."""
    return hashlib.sha256(b"".join(map(_digest, paths))).hexdigest()


def _digest(file: Path) -> bytes:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").digest()
