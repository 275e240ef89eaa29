"""Write tables of all components, with their settings and defaults, into Markdown files.

A component is a file of stages/objectives, models, tasks, methods, sources, baselines or
optimizers. Its settings are the keyword parameters of its constructor: the keys that its entry in
params.yaml may have. Each table is between `<!-- generated: NAME -->` and `<!-- end -->`, where
NAME is a folder or `params` (all settings of params.yaml).
"""

import inspect
import re
import types
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from stages.baselines._baseline import BASELINES
from stages.commands._shared import parser_of
from stages.core.components import Components, summary
from stages.core.params import FILLED_IN, Adaptation, Params, Schedule, Training
from stages.core.process import exit_on_mistake
from stages.methods._method import METHODS
from stages.models._backbone import MODELS
from stages.objectives._objective import OBJECTIVES
from stages.optimizers._optimizer import OPTIMIZERS
from stages.proposal.checkpoints import PUBLISHED
from stages.sources._source import SOURCES
from stages.tasks._task import TASKS

FOLDERS: dict[str, Components[Any]] = {
    components.folder: components
    for components in (OBJECTIVES, MODELS, TASKS, METHODS, SOURCES, BASELINES, OPTIMIZERS)
}
BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
# Settings that models change in part, and the section that has a table of them.
SHARED: dict[Any, str] = {
    Training: "pretrain.training",
    Adaptation: "finetune.methods.NAME.training",
}
COMPONENT = dict[str, Any]
MANY = 5  # a component that shares more of its last settings with an earlier one refers to it


def main() -> None:
    parser = parser_of("components", __doc__)
    parser.add_argument("--write", metavar="FILE", type=Path, nargs="+", required=True)
    options = parser.parse_args()
    exit_on_mistake(lambda: fill(options.write))


def fill(files: list[Path]) -> None:
    for file in files:
        file.write_text(filled(file.read_text(encoding="utf-8")), encoding="utf-8")


def filled(text: str) -> str:
    """Returns the text with every table between marks generated anew."""
    return BLOCK.sub(lambda block: f"{block[1]}\n{table(block[2])}\n{block[3]}", text)


def table(name: str) -> str:
    """Returns the table ``name``: the components of a folder, or the settings of params.yaml
    (``params``), or the published checkpoints. Raises KeyError for another name."""
    if name == "params":
        return "\n".join(_sections("", Params)).lstrip("\n") + "\n"
    if name == "checkpoints":
        columns = ["name", "revision", "architecture", "weights", "tokens", "knows", "licence"]
        rows = [columns, ["---"] * len(columns)]
        for entry in PUBLISHED.values():
            shown = {"name": f"`{entry['name']}`", "revision": f"`{entry['revision']}`"}
            rows.append([str((entry | shown)[column]) for column in columns])
        return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
    lines, components = ["| name | what it is | settings |", "|---|---|---|"], FOLDERS[name]
    seen = dict[str, list[str]]()
    for component in components.names():
        cls = components.find(component, where=name)
        settings = seen[component] = [*_settings(cls)]
        parts = [f"`{setting}`" for setting in settings]
        for other, theirs in list(seen.items())[:-1]:
            pairs = zip(reversed(settings), reversed(theirs), strict=False)
            if (same := len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])) > MANY:
                first = theirs[-same].partition(":")[0]
                since = "" if same == len(theirs) else f" from `{first}` on"
                parts = [*parts[:-same], f"those of `{other}`{since}"]
                break
        shown = "<br>".join(parts) or "none"
        what = summary(cls).replace("|", "\\|")
        lines.append(f"| `{component}` | {what} | {shown} |")
    return "\n".join(lines) + "\n"


def _settings(cls: type) -> Iterator[str]:
    """Yields the settings of a component (``mask_prob: float = 0.15``), required ones first, in the
    order of the constructor."""
    schema: Any = getattr(cls, "schema", cls)
    required, optional = dict[str, str](), dict[str, str]()
    for part in (cls.__init__, schema.__init__):
        hints = get_type_hints(part)
        for key, parameter in inspect.signature(part).parameters.items():
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                kind = "mapping" if hints[key] == COMPONENT else _type(hints[key])
                if parameter.default is inspect.Parameter.empty:
                    required[key] = f"{key}: {kind}"
                else:
                    optional[key] = f"{key}: {kind} = {_value(parameter.default)}"
    yield from (*required.values(), *optional.values())


def _sections(path: str, model: type[BaseModel]) -> Iterator[str]:
    """Yields the lines of the table of a section of params.yaml, then those of all sections inside
    it."""
    if path:
        yield from ("", f"## `{path}`", "", _plain(model.__doc__))
    yield from ("", "| setting | what it is |", "|---|---|")
    repeated = [*Schedule.model_fields] if model is Adaptation else []
    fields = {
        f"{path}.{field.alias or name}".lstrip("."): field
        for name, field in model.model_fields.items()
        if FILLED_IN not in field.metadata and name not in repeated
    }
    for inside, field in sorted(fields.items(), key=lambda item: not _is_required(item[1])):
        yield f"| `{_setting(inside, field)}` | {_plain(field.description)} |"
    if repeated:
        names = ", ".join(f"`{name}`" for name in repeated)
        yield f"| {names} | As in `{SHARED[Training]}`. |"
    for name, field in fields.items():
        for inside, nested in _inside(name, field.annotation):
            if SHARED.get(nested, inside) == inside:
                yield from _sections(inside, nested)


def _inside(path: str, hint: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yields the path and type of each section that a setting of type ``hint`` holds."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is dict and hint != COMPONENT:
        yield from _inside(f"{path}.NAME", parts[1])
    elif origin in (Annotated, Union, types.UnionType):
        for part in parts[:1] if origin is Annotated else parts:
            yield from _inside(path, part)
    elif isinstance(hint, type) and issubclass(hint, BaseModel):
        yield path, hint


def _setting(path: str, field: FieldInfo) -> str:
    """Returns the name of a setting with its type and default."""
    hint, default = field.annotation, field.get_default(call_default_factory=True)
    name = path.rpartition(".")[2]
    if SHARED.get(hint, path) != path:
        return f"{name}: settings of {SHARED[hint]}, optional"
    shown = f"{name}: {_type(hint)}"
    if _is_required(field):
        return shown
    if field.is_required() or any(True for _ in _inside("", hint)) or default in (None, {}, []):
        return f"{shown}, optional"
    return f"{shown} = {_value(default)}"


def _is_required(field: FieldInfo) -> bool:
    """Whether a study must state a setting. Where the setting's docstring says "by default", a
    validator fills it in."""
    return field.is_required() and "by default" not in (field.description or "")


def _plain(docstring: str | None) -> str:
    """Returns the first paragraph of a docstring as Markdown on one line."""
    paragraph = inspect.cleandoc(docstring or "").split("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "`").replace("|", "\\|")


def _type(hint: Any) -> str:
    """Returns a type as tables show it: ``int or all``."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint == COMPONENT:
        return "component"
    if origin is Annotated:
        return _type(parts[0])
    if origin is Literal:
        return "/".join(map(str, parts))
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_type(p) for p in parts if p is not type(None)))
    if origin is dict:
        return "entries"
    if origin is not None:
        return f"list of {', '.join(_type(part) for part in parts if part is not Ellipsis)}"
    is_section = isinstance(hint, type) and issubclass(hint, BaseModel)
    return "settings" if is_section else str(getattr(hint, "__name__", hint))


def _value(default: object) -> str:
    """Returns a default as params.yaml states it."""
    if default is None:
        return "(left out)"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, str):
        return default if re.fullmatch(r"[\w.-]+", default) else repr(default)
    is_list = isinstance(default, tuple | list)
    return f"[{', '.join(map(str, default))}]" if is_list else str(default)


if __name__ == "__main__":
    main()
