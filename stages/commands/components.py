"""Show every component with its settings and their defaults, as Markdown tables.

A component is a file of stages/objectives, models, tasks, methods, sources or baselines. Its
settings are the keyword parameters of its constructor: the keys that its entry in params.yaml may
have. `--write FILE` replaces the tables in a Markdown file, each between `<!-- generated: NAME -->`
and `<!-- end -->`, where NAME is a folder or `fits` (the table of `python -m
stages.commands.fits`).
"""

import argparse
import inspect
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from stages.baselines._baseline import BASELINES
from stages.commands import fits
from stages.core.components import Components
from stages.methods._method import METHODS
from stages.models._backbone import MODELS
from stages.objectives._objective import OBJECTIVES
from stages.sources._source import SOURCES
from stages.tasks._task import TASKS

FOLDERS: dict[str, Components[Any]] = {
    components.folder: components
    for components in (OBJECTIVES, MODELS, TASKS, METHODS, SOURCES, BASELINES)
}
FITS = "fits"
BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m stages.commands.components",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", nargs="*", help=f"any of {', '.join(FOLDERS)}; without, all")
    parser.add_argument(
        "--write", metavar="FILE", type=Path, help="replace the tables in this file"
    )
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.folder if name not in FOLDERS]:
        parser.error(f"no such folder of components: {', '.join(unknown)}")
    if arguments.write is None:
        tables = (table(name) for name in arguments.folder or FOLDERS)
        print("\n".join(tables), end="")
        return
    try:
        written = filled(arguments.write.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        print(f"error: {arguments.write}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    arguments.write.write_text(written, encoding="utf-8")


def filled(text: str) -> str:
    """``text`` with every table between its marks made anew.

    Raises ValueError for a mark that names no table.
    """

    def replaced(block: re.Match[str]) -> str:
        start, name, end = block.groups()
        if name not in (*FOLDERS, FITS):
            raise ValueError(f"no table is named {name!r}; valid: {', '.join((*FOLDERS, FITS))}")
        return f"{start}\n{table(name)}\n{end}"

    return BLOCK.sub(replaced, text)


def table(name: str) -> str:
    """A folder's components, one row each, or what fits what."""
    lines = fits.lines() if name == FITS else _rows(FOLDERS[name])
    return "\n".join(lines) + "\n"


def _rows(components: Components[Any]) -> Iterator[str]:
    yield "| name | what it is | settings |"
    yield "|---|---|---|"
    for name in components.names():
        cls = components.find(name, where=components.folder)
        settings = "<br>".join(f"`{setting}`" for setting in _settings(cls)) or "none"
        yield f"| `{name}` | {_summary(cls)} | {settings} |"


def _summary(cls: type) -> str:
    """The first sentence of the module's docstring, else of the class's."""
    text = sys.modules[cls.__module__].__doc__ or cls.__dict__.get("__doc__") or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.])(?<!et al[.])\s+(?=[A-Z`<])", paragraph)[0]
    return sentence.replace("``", "`").replace("|", "\\|")


def _settings(cls: type) -> Iterator[str]:
    """``mask_prob: float = 0.15``, the required ones first, as the constructor orders them; "or a
    list" of settings of which trials try several values."""
    schema: Any = getattr(cls, "schema", cls)
    parts = (cls.__init__, schema.__init__, getattr(schema, "from_settings", schema.__init__))
    found: dict[str, tuple[Any, object]] = {}
    for part in parts:
        hints = get_type_hints(part)
        for key, parameter in inspect.signature(part).parameters.items():
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                found[key] = (hints[key], parameter.default)
    empty = inspect.Parameter.empty
    tried = getattr(cls, "tried", ())
    for key, (hint, default) in sorted(found.items(), key=lambda item: item[1][1] is not empty):
        shown = f"{_type(hint)} or a list" if key in tried else _type(hint)
        yield f"{key}: {shown}" + ("" if default is empty else f" = {_value(default)}")


def _type(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "/".join(str(value) for value in get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        shown = [_type(part) for part in get_args(hint) if part is not type(None)]
        return " or ".join(shown)
    if get_origin(hint) is not None:
        inner = ", ".join(_type(part) for part in get_args(hint) if part is not Ellipsis)
        return f"list of {inner}"
    return str(getattr(hint, "__name__", hint))


def _value(default: object) -> str:
    """As it stands in params.yaml."""
    if default is None:
        return "(left out)"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, str):
        return default if re.fullmatch(r"[\w.-]+", default) else repr(default)
    return f"[{', '.join(map(str, default))}]" if isinstance(default, tuple) else str(default)


if __name__ == "__main__":
    main()
