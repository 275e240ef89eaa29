"""Files of public checkpoints: where they are, the hash that pins them, and which are refused.

``path`` is a name on the hub (google-bert/bert-base-uncased) or a local folder in the same layout.
The hub's cache, HF_HOME and HF_HUB_OFFLINE are respected. Only safetensors are loaded, and no code
of a checkpoint runs.
"""

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from stages.core.artifacts import read_json, sha256
from stages.core.paths import COMMIT, ON_THE_HUB

LOCAL = {"local_files_only": True, "trust_remote_code": False}  # for transformers
CONFIG = "config.json"
WEIGHTS = ("model*.safetensors", "model.safetensors.index.json")
VOCABULARY = (  # files of the configuration and the tokenizer
    *(CONFIG, "tokenizer*.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.*", "merges.txt", "*.model", "tekken.json", "entity_vocab.json", "normalizer.json"),
    *("chat_template.jinja", "additional_chat_templates/*.jinja"),
)
CONTENT_DIGITS = 12


@cache
def folder_of(
    path: str, revision: str, patterns: tuple[str, ...] = (*WEIGHTS, *VOCABULARY)
) -> Path:
    """Returns the folder with the files: ``path`` if it is a folder, else the hub's cache, into
    which missing files are downloaded. Raises ValueError if the download fails."""
    if Path(path).is_dir():
        return Path(path)
    refuse_unpinned(path, revision)
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(
            path, revision=revision, allow_patterns=[*patterns], ignore_patterns=["*/*"]
        )
    except Exception as error:  # a download can fail in many ways
        raise ValueError(
            f"path: {path} at revision {revision} is not in the cache nor can be downloaded: "
            f"{line_of(error)}"
        ) from None
    return Path(folder)


def refuse_unpinned(path: str, revision: str) -> None:
    """Raises ValueError unless the path can be a name on the hub and the revision is a commit's."""
    if not ON_THE_HUB.fullmatch(path):
        raise ValueError(f"path: no such folder, nor can it be a name on the hub: {path!r}")
    if not COMMIT.fullmatch(revision):
        raise ValueError(
            f"revision: must be the hash of a commit of {path} (all 40 digits), not {revision!r}"
        )


def refuse_other_content(folder: Path, revision: str) -> None:
    """Raises ValueError if the content of a local folder does not have the pinned hash."""
    if revision != (content := content_of(folder)):
        raise ValueError(f"revision: the folder's content is {content!r}, not {revision!r}")


def content_of(folder: Path) -> str:
    """Returns the hash that pins a folder, computed from all files that are read."""
    digest = hashlib.sha256()
    for file in files_in(folder):
        digest.update(file.name.encode() + sha256(file).encode())
    return digest.hexdigest()[:CONTENT_DIGITS]


def files_in(folder: Path, patterns: Iterable[str] = (*WEIGHTS, *VOCABULARY)) -> list[Path]:
    """Returns the files of a folder that match ``patterns``, by default all that are ever read."""
    return sorted({path for pattern in patterns for path in folder.glob(pattern)})


def config_of(folder: Path) -> Any:
    """Returns the model's configuration; raises ValueError if transformers cannot read it."""
    from transformers import AutoConfig  # the import takes seconds

    try:
        return AutoConfig.from_pretrained(folder, **LOCAL)
    except Exception as error:  # transformers raises many kinds
        raise ValueError(f"path: {folder} is no model of transformers: {line_of(error)}") from None


def refuse_unusable(folder: Path) -> None:
    """Raises ValueError for a checkpoint whose files are not, or not all, what is loaded."""
    inside = files_in(folder, [f"0_*/{pattern}" for pattern in WEIGHTS])
    has_weights = bool(files_in(folder, WEIGHTS))
    settings = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    has_adapter = (folder / "adapter_config.json").is_file()
    reasons = {
        "has an adapter, which is not loaded; save the whole model (merge_and_unload)": has_adapter,
        f"has its model in a folder inside it: use {inside[0].parent if inside else ''}": (
            inside and not has_weights
        ),
        "needs model.safetensors; weights in other formats may hold code": not has_weights,
        "has a layer after its model (N_Dense), which is not loaded; remove its folder": (
            files_in(folder, ["[0-9]_Dense"])
        ),
        "has quantised weights, which cannot be trained here": "quantization_config" in settings,
    }
    if reason := next((reason for reason, holds in reasons.items() if holds), None):
        raise ValueError(f"path: {folder} {reason}")


def line_of(error: BaseException) -> str:
    """Returns the message of an error in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
