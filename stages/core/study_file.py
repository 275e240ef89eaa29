"""Reads params.yaml, or another study, and tells all of its faults at once."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from stages.core.artifacts import Json
from stages.core.components import Location, Settings, message_of, path_of
from stages.core.inheritance import NONE, filled_in, mapping
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
    if old := [*_old_forms(raw)]:
        raise ValueError("\n".join(old))
    faults = dict(_unseen_by_dvc(raw)) | dict(_nothing_to_take_over(raw))
    try:
        params = Params.model_validate(raw)
        if not faults:
            return params
    except ValidationError as error:
        every = {path_of(fault["loc"]): message_of(fault, ()) for fault in error.errors()}
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
    """Returns the text of a study file; raises ValueError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; copy one of studies/ to it") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: must be UTF-8: {error}") from None


# Faults ------------------------------------------------------------------------------------------


def _unseen_by_dvc(node: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Yields the path of each setting that DVC would ignore, with what is wrong."""
    for key, value in node.items() if isinstance(node, Mapping) else enumerate(node):
        path = f"{where}.{key}".lstrip(".")
        if key in ("size", "nfiles"):
            # DVC's run cache ignores these keys and would restore a stale result.
            yield path, f"DVC ignores the key {key!r}; choose another name"
        elif value is None or value == []:
            # DVC omits None and [] from a stage's command, so editing them would rerun nothing.
            yield path, f"must not be empty; leave the key out or write {NONE!r}"
        elif isinstance(value, Mapping | list):
            yield from _unseen_by_dvc(value, path)


def _nothing_to_take_over(raw: Settings) -> Iterator[tuple[str, str]]:
    """Yields the path of each setting that is missing where other entries would take it over."""
    for name, entry in mapping(mapping(raw.get("finetune")).get("methods")).items():
        if mapping(entry).get("models") and "training" not in entry:
            yield (
                f"finetune.methods.{name}.models",
                "changes the settings of `training`, which the method does not have",
            )
    for name, entry in mapping(raw.get("tasks")).items():
        if "split_seeds" in mapping(entry) and entry.get("split_per_seed") is not True:
            yield f"tasks.{name}.split_seeds", "is filled in; write `split_per_seed: true`"
    pretrain = raw.get("pretrain", {})
    if not isinstance(pretrain, Mapping) or "training" in pretrain:
        return
    for name, model in mapping(filled_in(raw).get("models")).items():
        objective = mapping(model).get("objective", NONE)
        if mapping(objective).get("name", objective) != NONE:
            yield "pretrain.training", f"missing; {name} trains"
            return


def _faults(error: ValidationError, raw: Settings) -> Iterator[tuple[str, str]]:
    """Yields the path and the message of each fault of the schema. A faulty value that entries take
    over is told where it is stated, and a missing one where it would be stated for all."""
    missing = {fault["loc"] for fault in error.errors() if fault["type"] == "missing"}
    first = next(iter(mapping(raw.get("models"))), None)
    for fault in error.errors():
        match location := fault["loc"]:
            case _ if location not in missing and not _is_stated(raw, location):
                continue
            case ("models", _, "training", _) | ("finetune", "methods", _, "models", _, _) if (
                location in missing
            ):
                continue
            case ("models", name, "tokenizer") if location in missing:
                valid = ", ".join(mapping(raw.get("tokenizers"))) or "none in tokenizers:"
                message = f"missing; valid: {valid}"
            case ("models", name, key) if location in missing:
                message = f"missing; the first model must name its {key}"
                if name != first and ("models", first, key) in missing:
                    continue
            case ("tasks", _, str(key)) if location in missing and key.startswith("num_"):
                message = f"missing; give it a value here, or one for all tasks in samples.{key}"
            case _:
                keys = _keys_at(location[:-1]) if fault["type"] == "extra_forbidden" else ()
                message = message_of(fault, keys)
        yield path_of(location), message


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
    kind: Any = Params
    for part in location:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            fields = {field.alias or name: field for name, field in kind.model_fields.items()}
            kind = fields[str(part)].annotation
            kind = next(iter(get_args(kind)), kind) if isinstance(kind, UnionType) else kind
        elif get_origin(kind) is dict:  # in dict[Name, Model], a name leads to Model
            kind = get_args(kind)[1]
    # A tokenizer is Annotated[Tokenizer | PublishedTokenizer, ...].
    kinds = get_args(get_args(kind)[0]) if get_origin(kind) is Annotated else (kind,)
    fields = [item for kind in kinds for item in kind.model_fields.items()]
    shown = [field.alias or name for name, field in fields if FILLED_IN not in field.metadata]
    return list(dict.fromkeys(shown))


def _old_forms(raw: Settings) -> Iterator[str]:
    """Yields a message for each setting of an earlier form, with what to write instead."""
    pretrain, methods = mapping(raw.get("pretrain")), mapping(raw.get("finetune")).get("methods")
    for section in ("runs", "continued"):
        entries = mapping(pretrain.get(section))
        if entries:
            also = "; one with a `parent:` stands there like any other" * (section == "continued")
            yield (
                f"pretrain.{section}: write the entries {', '.join(entries)} below `models:` in "
                f"the first column{also}"
            )
        for name, entry in entries.items():
            if "model" in mapping(entry):
                yield f"pretrain.{section}.{name}.model: {_architecture_for(entry['model'])}"
    for name, entry in mapping(raw.get("models")).items():
        if "model" in mapping(entry):
            yield f"models.{name}.model: {_architecture_for(entry['model'])}"
    for name, entry in mapping(methods).items():
        if "runs" in mapping(entry):
            yield f"finetune.methods.{name}.runs: write `models:` instead of `runs:`"


def _architecture_for(model: Any) -> str:
    """Returns what to write instead of ``model:``, which named three architectures of our own."""
    entry = model if isinstance(model, Mapping) else {"name": model}
    name = OLD_MODELS.get(str(entry.get("name")), entry.get("name"))
    kept = ("d_model", "num_layers", "num_heads", "d_ff", "path", "revision", "d_cell")
    settings = {"name": name} | {key: entry[key] for key in kept if key in entry}
    if name in ("modernbert", "phi"):
        settings["start"] = "local"
    written = ", ".join(f"{key}: {value}" for key, value in settings.items())
    return (
        f"write `architecture: {{{written}}}`; other families, such as bert, llama, gpt2 and bart, "
        "are the files of stages/models"
    )
