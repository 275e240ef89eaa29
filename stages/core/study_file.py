"""Reads params.yaml, or another study, and reports all of its faults at once."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from stages.core.artifacts import Json
from stages.core.components import Location, Settings, message_of, path_of
from stages.core.inheritance import NONE, mapping
from stages.core.params import FILLED_IN, Params

PATH = Path("params.yaml")
# The families that are nearest to the models that params.yaml once named.
OLD_MODELS = {"encoder": "modernbert", "decoder": "phi", "encoder_decoder": "t5"}


def load(path: Path = PATH) -> Params:
    """Reads params.yaml.

    Raises ValueError with one line per fault, each beginning with its path.
    """
    return typed(read_yaml(path))


def typed(raw: Settings) -> Params:
    """Returns the parsed params.yaml as ``Params``; raises the errors of ``load``."""
    faults = dict(_old_forms(raw))
    if not faults:
        faults = dict(_refused_values(raw))
        try:
            params = Params.model_validate(raw)
            if not faults:
                return params
        except ValidationError as error:
            every = {path_of(fault["loc"]): message_of(fault, _keys_at) for fault in error.errors()}
            faults = dict(_faults(error, raw)) | faults or every
    raise ValueError("\n".join(f"{path}: {message}" for path, message in faults.items()))


def read_yaml(path: Path) -> Json:
    """Reads a YAML file as DVC does (YAML 1.2: ``1e-3`` is a number).

    Raises ValueError if the file is missing, no valid YAML or no mapping.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    text = text_of(path)
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"[^#'\"]*(?<!\S)[{]?<<\s*:", line):
            raise ValueError(
                f"{path}: line {number}: merge keys (<<:) break `dvc exp run -S`; write the keys "
                "out"
            )
    try:
        raw = YAML(typ="safe").load(text)
    except YAMLError as error:
        fault = str(error).replace('in "<unicode string>", ', "")
        raise ValueError(f"{path}: {' '.join(fault.split())}") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{path}: must be a mapping of settings")
    return raw


def text_of(path: Path) -> str:
    """Returns the text of a study file."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file; copy one of studies/ to it")
    return path.read_text(encoding="utf-8")


# Faults ------------------------------------------------------------------------------------------


def _refused_values(node: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Yields the path of each setting that DVC would ignore, or that is filled in, with what is
    wrong."""
    for key, value in node.items() if isinstance(node, Mapping) else enumerate(node):
        path = f"{where}.{key}".lstrip(".")
        if key in ("size", "nfiles"):
            # DVC's run cache ignores these keys and would restore a stale result.
            yield path, f"DVC ignores the key {key!r}; choose another name"
        elif value is None or value == []:
            # DVC omits None and [] from a stage's command, so editing them would rerun nothing.
            yield path, f"must not be empty; leave the key out or write {NONE!r}"
        elif key == "split_seeds" and node.get("split_per_seed") is not True:
            yield path, "is filled in; write `split_per_seed: true`"
        elif isinstance(value, Mapping | list):
            yield from _refused_values(value, path)


def _faults(error: ValidationError, raw: Settings) -> Iterator[tuple[str, str]]:
    """Yields the path and the message of each fault of the schema. A faulty value that several
    entries take over is reported once, where it is stated; a missing one, where it would be stated
    for all."""
    faults = {fault["loc"]: fault for fault in error.errors()}
    first = next(iter(mapping(raw.get("models"))), None)
    for location, fault in faults.items():
        if fault["type"] == "missing":
            match location:
                case ("models", _, "training", key):
                    shared = "pretrain", "training", key
                case ("models", name, key) if name != first:
                    shared = "models", first, key
                case ("finetune", "methods", method, "models", _, key):
                    shared = "finetune", "methods", method, "training", key
                case _:
                    shared = ()
            is_told_elsewhere = any(shared[: end + 1] in faults for end in range(len(shared)))
        else:
            is_told_elsewhere = not _is_stated(raw, location)
        if not is_told_elsewhere:
            yield path_of(location), message_of(fault, _keys_at)


def _is_stated(raw: Any, location: Location) -> bool:
    """Whether a study has a value at a location of its own."""
    for part in location:
        node: Any = dict(enumerate(raw)) if isinstance(raw, list) else mapping(raw)
        if part in node:
            raw = node[part]
        elif part != "[key]":
            return False
    return True


def _keys_at(location: Location) -> list[str]:
    """Returns the valid keys at a location in params.yaml, for the message about an unknown key."""
    models: list[type[BaseModel]] = [Params]
    for part in location:
        fields = {f.alias or n: f for model in models for n, f in model.model_fields.items()}
        if part in fields:  # else it is the name of an entry
            models = _models_in(fields[str(part)].annotation)
    fields = {f.alias or n: f for model in models for n, f in model.model_fields.items()}
    return [key for key, field in fields.items() if FILLED_IN not in field.metadata]


def _models_in(hint: Any) -> list[type[BaseModel]]:
    """Returns the sections that a type names, such as ``Model`` in ``dict[Name, Model]``."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return [hint]
    return [model for part in get_args(hint) for model in _models_in(part)]


def _old_forms(raw: Settings) -> Iterator[tuple[str, str]]:
    """Yields the path of each setting of an earlier form, with what to write instead."""
    pretrain, methods = mapping(raw.get("pretrain")), mapping(raw.get("finetune")).get("methods")
    old = {f"pretrain.{key}": mapping(pretrain.get(key)) for key in ("runs", "continued")}
    for path, entries in old.items():
        if entries:
            names = ", ".join(entries)
            yield path, f"write the entries {names} below `models:` in the first column"
    for path, entries in (old | {"models": mapping(raw.get("models"))}).items():
        for name, entry in entries.items():
            if "model" in mapping(entry):
                yield f"{path}.{name}.model", _architecture_for(entry["model"])
    for name, entry in mapping(methods).items():
        if "runs" in mapping(entry):
            yield f"finetune.methods.{name}.runs", "write `models:` instead of `runs:`"


def _architecture_for(model: Any) -> str:
    """Returns what to write instead of ``model:``, which named three architectures of our own."""
    entry = model if isinstance(model, Mapping) else {"name": model}
    name = OLD_MODELS.get(str(entry.get("name")), entry.get("name"))
    kept = ("d_model", "num_layers", "num_heads", "d_ff", "path", "revision", "d_cell")
    settings = {"name": name} | {key: entry[key] for key in kept if key in entry}
    if name in ("modernbert", "phi"):
        settings["start"] = "local"
    written = ", ".join(f"{key}: {value}" for key, value in settings.items())
    return f"write `architecture: {{{written}}}`, or another file of stages/models"
