"""Files of public checkpoints: which are read, where they are, and the hash that pins them.

``path`` is a name on the hub (google-bert/bert-base-uncased) or a local folder in the same layout.
The hub's cache, HF_HOME and HF_HUB_OFFLINE are respected.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from huggingface_hub import snapshot_download

from stages.core.artifacts import Json, sha256
from stages.core.hub_names import COMMIT, ON_THE_HUB

WEIGHTS = ("model*.safetensors", "model.safetensors.index.json")
VOCABULARY = (  # files of the configuration and the tokenizer
    *("config.json", "tokenizer*.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.*", "merges.txt", "*.model", "tekken.json", "entity_vocab.json", "normalizer.json"),
    *("chat_template.jinja", "additional_chat_templates/*.jinja"),
)
CONTENT_DIGITS = 12
MOST_BYTES = 2**28  # of a configuration or a vocabulary; the largest published ones have 2**25


@cache
def folder_of(
    path: str, revision: str, patterns: tuple[str, ...] = (*WEIGHTS, *VOCABULARY)
) -> Path:
    """Returns the folder with the files: ``path`` if it is a folder, else the hub's cache, into
    which missing files are downloaded.

    Raises ValueError if the download fails.
    """
    if Path(path).is_dir():
        return Path(path)
    refuse_unpinned(path, revision)
    try:
        return Path(
            snapshot_download(
                path, revision=revision, allow_patterns=[*patterns], ignore_patterns=["*/*"]
            )
        )
    except Exception as error:  # a download can fail in many ways
        raise ValueError(
            f"path: {path} at revision {revision} is not in the cache nor can be downloaded: "
            f"{line_of(error)}"
        ) from None


def refuse_unpinned(path: str, revision: str) -> None:
    """Raises ValueError for a path that cannot be a name on the hub, or a revision that is not the
    hash of a commit."""
    if not ON_THE_HUB.fullmatch(path):
        raise ValueError(
            f"path: no such folder, nor can it be a name on the hub such as "
            f"google-bert/bert-base-uncased: {path!r}"
        )
    if not COMMIT.fullmatch(revision):
        raise ValueError(
            f"revision: must be the hash of a commit of {path} (all 40 digits, since it is no "
            f"folder here; branches and tags can be moved), not {revision!r}; `python -m "
            f"stages.commands.pin` asks the hub for it and writes it"
        )


def refuse_other_content(folder: Path, revision: str) -> None:
    """Raises ValueError if the content of a local folder does not have the pinned hash."""
    if revision != (content := content_of(folder)):
        raise ValueError(f"revision: the folder's content is {content!r}, not {revision!r}")


def files_in(folder: Path, patterns: Iterable[str]) -> list[Path]:
    return sorted({path for pattern in patterns for path in folder.glob(pattern)})


def read_files(folder: Path, patterns: Iterable[str] = (*WEIGHTS, *VOCABULARY)) -> list[Path]:
    """Returns the files of a folder that match ``patterns``, by default all that are ever read.

    Raises ValueError for a file that is no regular file of the folder, or is too large. The folder
    of a commit in the hub's cache may also link to files in the rest of the repository's cache.
    """
    root = (folder.parents[1] if folder.parent.name == "snapshots" else folder).resolve()
    files = files_in(folder, patterns)
    for file in files:
        target = Path(os.path.realpath(file))  # does not fail if links form a circle
        if not target.is_relative_to(root):
            raise ValueError(
                f"path: {file} is a link to {target}, outside of the checkpoint's folder; copy the "
                "file into the folder"
            )
        if not target.is_file():
            raise ValueError(f"path: {file} is no regular file; remove it or replace it by a file")
        if file.suffix != ".safetensors" and target.stat().st_size > MOST_BYTES:
            raise ValueError(
                f"path: {file} has {target.stat().st_size:,} bytes; such a file may have "
                f"{MOST_BYTES:,} at most"
            )
    return files


def read_settings(file: Path) -> Json:
    """Returns the content of a checkpoint's JSON file; raises ValueError if it is no object."""
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"path: {file} is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"path: {file} cannot be read: {line_of(error)}") from None
    if not isinstance(settings, dict):
        raise ValueError(f"path: {file} must be a JSON object")
    return settings


def content_of(folder: Path) -> str:
    """Returns the hash that pins a folder, computed from all files that are read.

    Raises the errors of ``read_files``.
    """
    digest = hashlib.sha256()
    for file in read_files(folder):
        digest.update(file.name.encode())
        digest.update(sha256(file).encode())
    return digest.hexdigest()[:CONTENT_DIGITS]


def line_of(error: BaseException) -> str:
    """Returns the message of an error in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
