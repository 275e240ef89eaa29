"""The smoke study with some of its settings changed, and the faults of such a study."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from ruamel.yaml import YAML

from stages.checking.faults import find_faults
from stages.core import paths
from stages.core.params import Params
from stages.core.plans import Plan
from stages.core.study_file import load, read_yaml, typed
from stages.planning import stage_plans

ROOT = Path(__file__).parents[1]
STUDIES = sorted((ROOT / "studies").glob("*.yaml"))
SMOKE = ROOT / "studies" / "smoke.yaml"
DELETED = object()  # a value that removes its key


class Fault(NamedTuple):
    """A fault that the root stage reports."""

    path: str
    message: str


def smoke_with(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the smoke study with every setting written out and some of them changed:
    ``{"models.encoder_mlm.corpus": "none"}``."""
    raw = written_out(load(SMOKE))
    for path, value in changes.items():
        set_in(raw, path.split("."), value)
    return raw


def short_smoke_with(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the smoke study as its file states it, with some settings changed."""
    raw = json.loads(json.dumps(read_yaml(SMOKE)))  # without aliases
    for path, value in changes.items():
        set_in(raw, path.split("."), value)
    return raw


def written_out(params: Params) -> dict[str, Any]:
    """Returns a parsed params.yaml that means ``params``, with every setting of runs, tasks and
    methods written out, so that a test can change any of them."""
    return params.model_dump(mode="json", exclude_none=True)


def set_in(raw: dict[str, Any], path: Sequence[str], value: object) -> None:
    """Sets the value at a path of a parsed params.yaml. Missing mappings on the way are added, and
    a component that is given by its name alone becomes a mapping."""
    node = raw
    for part in path[:-1]:
        if isinstance(node.get(part), str):
            node[part] = {"name": node[part]}
        node = node.setdefault(part, {})
    if value is DELETED:
        del node[path[-1]]
    else:
        node[path[-1]] = value


def with_values(folder: Path, changes: Mapping[str, Any]) -> Path:
    """Writes the study of ``smoke_with`` as ``params.yaml`` into a folder."""
    path = folder / "params.yaml"
    with path.open("w") as file:
        YAML().dump(smoke_with(changes), file)  # which keeps the order of keys
    return path


def edited(folder: Path, old: str, new: str, *, count: int = 1) -> Path:
    """Writes the smoke study as ``params.yaml`` with ``old`` replaced, for mistakes in YAML."""
    text = SMOKE.read_text()
    assert old in text
    path = folder / "params.yaml"
    path.write_text(text.replace(old, new, count))
    return path


def faults_of(study: Params | Mapping[str, Any]) -> list[Fault]:
    """Returns the faults of typed params, or of a parsed file."""
    try:
        params = study if isinstance(study, Params) else typed(study)
        lines = [line for fault in find_faults(params) for line in fault.splitlines()]
    except ValueError as error:
        lines = str(error).splitlines()
    return [Fault(*line.split(": ", 1)) for line in lines]


def paths_of(study: Params | Mapping[str, Any]) -> list[str]:
    return [fault.path for fault in faults_of(study)]


def alone(params: Params, run: str) -> Params:
    """Returns the study with one of its runs, which is then its reference."""
    pretrain = params.pretrain.model_copy(update={"reference": run})
    return params.model_copy(update={"models": {run: params.models[run]}, "pretrain": pretrain})


def plans(params: Params) -> dict[tuple[str, ...], Plan]:
    """Returns the plans of all stages, by the name and the keys of the stage."""
    with _project_packages():
        return stage_plans.plans(params)


def write_plans(params: Params, root: Path = Path()) -> None:
    """Writes the plans of all stages, as the root stage does, below the folder of a study."""
    with _project_packages():
        stage_plans.write_plans(stage_plans.plans(params), root / paths.PLANS)


def _project_packages() -> AbstractContextManager[object]:
    """Makes plans hash the project's requirements.lock, which the folder of a test lacks."""
    return patch.object(stage_plans, "PACKAGES", ROOT / "requirements.lock")
