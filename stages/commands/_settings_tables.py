"""Markdown tables of the settings of params.yaml, and types and defaults as text."""

import re
import types
from collections.abc import Iterator
from inspect import cleandoc
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from stages.core.params import AdaptationChanges
from stages.core.study_file import StudyFile, TrainingChanges

# Sections that take the settings of another section, all of them optional.
LIKE = {
    TrainingChanges: "pretrain.training",
    AdaptationChanges: "finetune.methods.NAME.training",
}
COMPONENT = dict[str, Any]


def params_tables() -> Iterator[str]:
    """Yields the lines of one table for each section of params.yaml."""
    for path, model in _sections("", StudyFile):
        if path:
            yield from ("", f"## `{path}`", "", _plain(model.__doc__ or ""))
        yield from ("", "| setting | what it is |", "|---|---|")
        fields = model.model_fields.items()
        for name, field in sorted(fields, key=lambda item: not _is_required(item[1])):
            yield f"| `{_setting(name, field)}` | {_plain(field.description or '')} |"


def _sections(path: str, model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yields a section and all sections inside it, each with its path in params.yaml."""
    yield path, model
    for name, field in model.model_fields.items():
        inside = f"{path}.{name}".lstrip(".")
        for part, nested in _models(inside, field.annotation):
            yield from _sections(part, nested)


def _models(path: str, hint: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yields the path and type of each section that a setting of type ``hint`` holds."""
    if get_origin(hint) is dict and hint != COMPONENT:
        yield from _models(f"{path}.NAME", get_args(hint)[1])
    elif get_origin(hint) in (Annotated, Union, types.UnionType):
        parts = get_args(hint)
        for part in parts[:1] if get_origin(hint) is Annotated else parts:
            yield from _models(path, part)
    elif isinstance(hint, type) and issubclass(hint, BaseModel) and hint not in LIKE:
        yield path, hint


def _setting(name: str, field: FieldInfo) -> str:
    """Returns the name of a setting with its type and default."""
    hint, default = field.annotation, field.get_default(call_default_factory=True)
    kind = shown_type(hint)
    if _is_required(field):
        return f"{name}: {kind}"
    if field.is_required() or any(True for _ in _models("", hint)) or default in (None, {}, []):
        return f"{name}: {kind}, optional"
    return f"{name}: {kind} = {shown_value(default)}"


def _is_required(field: FieldInfo) -> bool:
    """Whether a study must state a setting. Where the setting's docstring says "by default", a
    validator fills it in."""
    return field.is_required() and "by default" not in (field.description or "")


def _plain(docstring: str) -> str:
    """Returns the first paragraph of a docstring as Markdown on one line."""
    paragraph = cleandoc(docstring).split("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "`").replace("|", "\\|")


def shown_type(hint: Any) -> str:
    """Returns a type as tables show it: ``int or all``."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint == COMPONENT:
        return "component"
    if hint in LIKE:
        return f"settings of {LIKE[hint]}"
    if origin is Annotated:
        return shown_type(parts[0])
    if origin is Literal:
        return "/".join(str(value) for value in parts)
    if origin in (Union, types.UnionType):
        names = [shown_type(part) for part in parts if part is not type(None)]
        return " or ".join(dict.fromkeys(names))
    if origin is dict:
        return "entries"
    if origin is not None:
        inner = ", ".join(shown_type(part) for part in parts if part is not Ellipsis)
        return f"list of {inner}"
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return "settings"
    return str(getattr(hint, "__name__", hint))


def shown_value(default: object) -> str:
    """Returns a default as params.yaml states it."""
    if default is None:
        return "(left out)"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, str):
        return default if re.fullmatch(r"[\w.-]+", default) else repr(default)
    is_list = isinstance(default, tuple | list)
    return f"[{', '.join(map(str, default))}]" if is_list else str(default)
