"""The smoke study with some of its settings changed, and the faults of such a study."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML

from stages.checking.faults import find_faults
from stages.core.params import Params, read_yaml, typed

ROOT = Path(__file__).parents[1]
STUDIES = sorted((ROOT / "studies").glob("*.yaml"))
SMOKE = ROOT / "studies" / "smoke.yaml"
DELETED = object()  # a value that removes its key


class Fault(NamedTuple):
    """A line of what check_params refuses."""

    path: str
    message: str


def smoke_with(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The parsed study, with ``{"pretrain.encoder_mlm.corpus": "none"}``."""
    raw = plain(read_yaml(SMOKE))
    for path, value in changes.items():
        *above, key = path.split(".")
        node = raw
        for part in above:
            node = node[part]
        if value is DELETED:
            del node[key]
        else:
            node[key] = value
    return raw


def with_values(folder: Path, changes: Mapping[str, Any]) -> Path:
    """The study of ``smoke_with`` as ``params.yaml`` in a folder."""
    path = folder / "params.yaml"
    with path.open("w") as file:
        YAML().dump(smoke_with(changes), file)  # which keeps the order of keys
    return path


def edited(folder: Path, old: str, new: str, *, count: int = 1) -> Path:
    """The study as ``params.yaml`` in a folder, with another text: for mistakes in YAML."""
    text = SMOKE.read_text()
    assert old in text
    path = folder / "params.yaml"
    path.write_text(text.replace(old, new, count))
    return path


def plain(node: Any) -> Any:
    """Without aliases: what is changed in one place stays as it was in the others."""
    if isinstance(node, dict):
        return {key: plain(value) for key, value in node.items()}
    return [plain(value) for value in node] if isinstance(node, list) else node


def faults_of(study: Params | Mapping[str, Any]) -> list[Fault]:
    """Of typed params, or of a parsed file."""
    try:
        params = study if isinstance(study, Params) else typed(study)
        lines = [line for fault in find_faults(params) for line in fault.splitlines()]
    except ValueError as error:
        lines = str(error).splitlines()
    return [Fault(*line.split(": ", 1)) for line in lines]


def paths_of(study: Params | Mapping[str, Any]) -> list[str]:
    return [fault.path for fault in faults_of(study)]


def alone(params: Params, run: str) -> Params:
    """The study with one of its runs."""
    return params.model_copy(update={"pretrain": {run: params.pretrain[run]}})
